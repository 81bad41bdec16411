// Package strftime formats times as the C library's strftime does in the C locale. It has the conversions
// that are useful in file names.
package strftime

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// layouts are the conversions that package time supports.
var layouts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'j': "002", 'z': "-0700", 'Z': "MST",
	'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'r': "03:04:05 PM",
}

// literals are the conversions that stand for one fixed text.
var literals = map[byte]string{'%': "%", 'n': "\n", 't': "\t"}

// Check returns an error that names an unknown conversion of a pattern.
func Check(pattern string) error {
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' {
			continue
		}
		if i++; i == len(pattern) {
			return fmt.Errorf("%q ends in a %%: write %%%% for one", pattern)
		}
		if c := pattern[i]; layouts[c] == "" && literals[c] == "" && c != 's' {
			return fmt.Errorf("%q: conversion %%%c is not known (as in %%Y%%m%%d-%%H%%M%%S)", pattern, c)
		}
	}
	return nil
}

// Format formats a time by a pattern that Check accepts. It copies an unknown conversion unchanged.
func Format(pattern string, at time.Time) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' || i+1 == len(pattern) {
			b.WriteByte(pattern[i])
			continue
		}
		i++
		b.WriteString(convert(pattern[i], at))
	}
	return b.String()
}

func convert(c byte, at time.Time) string {
	if layout, ok := layouts[c]; ok {
		return at.Format(layout)
	}
	if text, ok := literals[c]; ok {
		return text
	}
	if c == 's' {
		return strconv.FormatInt(at.Unix(), 10)
	}
	return "%" + string(c)
}
