package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// numbers is a list of small numbers, written as 0,2-3.
type numbers []uint32

// highest number of a queue or a processor.
const highest = 8191

func (n *numbers) String() string {
	parts := make([]string, len(*n))
	for i, v := range *n {
		parts[i] = strconv.FormatUint(uint64(v), 10)
	}
	return strings.Join(parts, ",")
}

func (n *numbers) Set(text string) error {
	*n = nil
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 32)
		to, err2 := strconv.ParseUint(last, 10, 32)
		if errors.Join(err, err2) != nil || to < from || to > highest {
			return errors.New("want numbers such as 0,2-3")
		}
		for v := uint32(from); v <= uint32(to); v++ {
			if slices.Contains(*n, v) {
				return fmt.Errorf("%d is listed twice", v)
			}
			*n = append(*n, v)
		}
	}
	return nil
}
