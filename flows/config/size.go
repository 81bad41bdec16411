package config

import "strconv"

// Size is a number of bytes.
type Size uint64

// Units of Size.
const (
	Byte Size = 1
	KiB       = 1024 * Byte
	MiB       = 1024 * KiB
	GiB       = 1024 * MiB
	TiB       = 1024 * GiB
)

// units from the largest; the last has no name in a configuration.
var units = []struct {
	name string
	size Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", Byte}, {"", Byte}}

// String writes the size as a configuration would: "4000", "64KiB", "1GiB". The
// text is exact.
func (s Size) String() string {
	for _, u := range units[:4] {
		if s >= u.size && s%u.size == 0 {
			return strconv.FormatUint(uint64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(s), 10)
}

// roundUp is s rounded up to a multiple of unit; s itself for a unit of 0 or
// where the result would not fit.
func (s Size) roundUp(unit Size) Size {
	if unit == 0 || s%unit == 0 || s > ^Size(0)-unit {
		return s
	}
	return s - s%unit + unit
}
