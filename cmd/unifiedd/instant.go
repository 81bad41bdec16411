package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// instants are the formats of a time, except seconds since 1970.
var instants = []string{
	time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02",
}

// clocks are the formats of a time of today.
var clocks = []string{"15:04:05", "15:04"}

// instant parses a time to nanoseconds since the epoch. An empty text gives 0.
func instant(flag, text string, now time.Time) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	t, ok := parseInstant(text, now)
	if !ok {
		return 0, fmt.Errorf("%s %q is no time (try 2026-11-20T14:05:00Z, 2026-11-20 14:05:00, 14:05, -1h, now, or seconds since 1970)", flag, text)
	}
	if t.Year() < 1970 || t.Year() > 2500 || t.UnixNano() < 0 {
		return 0, fmt.Errorf("%s %q is not from 1970 on, or too far in the future", flag, text)
	}
	return uint64(t.UnixNano()), nil
}

func parseInstant(text string, now time.Time) (time.Time, bool) {
	if seconds, ok := strings.CutPrefix(text, "@"); ok {
		return parseEpoch(seconds)
	}
	if text == "now" {
		return now, true
	}
	if len(text) >= leastEpoch {
		if t, ok := parseEpoch(text); ok {
			return t, true
		}
	}
	if back, ok := strings.CutPrefix(text, "-"); ok {
		return parseAgo(back, now)
	}
	for _, form := range instants {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return t, true
		}
	}
	for _, form := range clocks {
		if t, err := time.Parse(form, text); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), now.Location()), true
		}
	}
	return time.Time{}, false
}

// leastEpoch is the least number of characters of seconds since 1970 without an @. A year has four digits.
const leastEpoch = 9

// parseAgo parses a duration before now: 1h, 90s, 1h30m, 2d.
func parseAgo(text string, now time.Time) (time.Time, bool) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil || text == "" {
		return time.Time{}, false
	}
	var d time.Duration
	if rest != "" {
		if d, err = time.ParseDuration(rest); err != nil || d < 0 {
			return time.Time{}, false
		}
	}
	return now.AddDate(0, 0, -int(n)).Add(-d), true
}

// parseEpoch parses seconds since 1970, with up to nine digits after the point.
func parseEpoch(text string) (time.Time, bool) {
	whole, part, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseUint(whole, 10, 33)
	if err != nil || len(part) > 9 {
		return time.Time{}, false
	}
	nanoseconds, err := strconv.ParseUint("0"+(part + "000000000")[:9], 10, 64)
	return time.Unix(int64(seconds), int64(nanoseconds)), err == nil
}
