package doctor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// readLine returns the content of a small file of /proc or /sys without its newline; empty if there
// is no such file.
func readLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// readNumber returns the number in a file of /proc or /sys.
func readNumber(path string) (int64, bool) {
	n, err := strconv.ParseInt(readLine(path), 10, 64)
	return n, err == nil
}

// parseList reads a list of numbers as the kernel writes it, "0-3,8", and skips parts that are not
// numbers.
func parseList(list string) []int {
	var out []int
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		low, err := strconv.Atoi(first)
		if err != nil {
			continue
		}
		high := low
		if isRange {
			if high, err = strconv.Atoi(last); err != nil || high-low > 1<<16 {
				continue
			}
		}
		for n := low; n <= high; n++ {
			out = append(out, n)
		}
	}
	return out
}

// exists reports whether the path exists.
func exists(path ...string) bool {
	_, err := os.Lstat(filepath.Join(path...))
	return err == nil
}

// lines returns the lines of a file of /proc or /sys, none if it does not exist.
func lines(path string) []string {
	text := readLine(path)
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
