package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Room is an amount of a disk's space: bytes, or, below zero, so many per cent of
// the disk.
type Room int64

// Of is the amount in bytes where the disk has so many.
func (r Room) Of(disk uint64) uint64 {
	if r < 0 {
		return disk / 100 * uint64(-r)
	}
	return uint64(r)
}

// String is the amount as it is configured.
func (r Room) String() string {
	if r < 0 {
		return strconv.Itoa(int(-r)) + "%"
	}
	return Size(r).String()
}

// ParseRoom reads a size or a percentage.
func ParseRoom(s string) (Room, error) {
	if digits, is := strings.CutSuffix(s, "%"); is {
		n, err := parseInt(digits)
		if err != nil || !within(n, 0, 99) {
			return 0, fmt.Errorf("%s is not from 0%% to 99%%", quote(s))
		}
		return Room(-n), nil
	}
	size, err := parseSize(s)
	if err == nil && size > math.MaxInt64 {
		err = fmt.Errorf("%s is too large", quote(s))
	}
	return Room(size), err
}
