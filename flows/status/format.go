package status

import (
	"fmt"
	"strconv"
)

// Grouped formats a number with commas between groups of three digits.
func Grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Bytes formats a number of bytes with three digits.
func Bytes(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for ; v >= 999.5 && i < len(units)-1; i++ {
		v /= 1024
	}
	return fmt.Sprintf("%.3g %s", v, units[i])
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return Grouped(n) + " times"
}
