package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// maxQuoted is the largest number of characters of a value that a message quotes.
const maxQuoted = 60

// quote formats a value for a message: quoted, escaped and not too long.
func quote(s string) string {
	if r := []rune(s); len(r) > maxQuoted {
		s = string(r[:maxQuoted]) + "…"
	}
	return strconv.Quote(s)
}

func parseText(s string) (string, error) { return s, nil }

// oneOf returns a parser for one of some words.
func oneOf[T ~string](values []T) func(string) (T, error) {
	return func(s string) (T, error) { return T(s), member(T(s), values) }
}

// parseWait parses how a worker waits. It explains the word of earlier releases that has gone.
func parseWait(s string) (Wait, error) {
	w, err := oneOf(allWaits)(s)
	if s == "poll" {
		err = wrong("remove it: a worker sleeps until there is something, and with sleep: 0s so does one that only captures", "%s", err)
	}
	return w, err
}

// parseAcknowledge parses a condition of acknowledgement. It accepts the word of earlier releases,
// which the validator refuses.
func parseAcknowledge(s string) (Acknowledge, error) {
	if s == string(acknowledgeQuorum) {
		return acknowledgeQuorum, nil
	}
	return oneOf(allAcknowledges)(s)
}

// member returns an error for a value that is not among these.
func member[T ~string](v T, values []T) error {
	words := make([]string, len(values))
	for i, w := range values {
		if v == w {
			return nil
		}
		words[i] = string(w)
	}
	hint := ""
	if meant, ok := suggest(string(v), words); ok {
		hint = didYouMean(meant)
	}
	return wrong(hint, "%s is not one of %s", quote(string(v)), strings.Join(words, ", "))
}

// switches are words that other formats have for true and false.
var switches = map[string]string{
	"yes": "true", "on": "true", "y": "true", "1": "true",
	"no": "false", "off": "false", "n": "false", "0": "false",
}

func parseBool(s string) (bool, error) {
	if meant, ok := switches[strings.ToLower(s)]; ok {
		return false, wrong(didYouMean(meant), "%s is neither true nor false", quote(s))
	}
	return s == "true", member(s, []string{"true", "false"})
}

// parseTrue is parseBool for settings in which false is not permitted.
func parseTrue(s string) (bool, error) {
	v, err := parseBool(s)
	if err == nil && !v {
		return false, wrong("remove it, and say where it is to go", "false leaves no end of the flow")
	}
	return v, err
}

// parseInt parses a decimal number. It refuses a leading zero, which some readers of YAML take for
// octal.
func parseInt(s string) (int, error) {
	v, err := strconv.Atoi(s)
	if err != nil || strconv.Itoa(v) != s {
		return 0, fmt.Errorf("%s is not a whole number", quote(s))
	}
	return v, nil
}

// parseTrafficClass parses a traffic class. It says how to write a DSCP, which some take it for.
func parseTrafficClass(s string) (int, error) {
	v, err := parseInt(s)
	if err == nil && !within(v, 0, 255) {
		err = wrong("four times a DSCP of 0 to 63", "%d is not from 0 to 255", v)
	}
	return v, err
}

// parseRate parses a rate in Mbit/s.
func parseRate(s string) (int, error) {
	v, err := parseInt(s)
	if err == nil && !within(v, 1, 1_000_000) {
		err = fmt.Errorf("%d is not from 1 to 1000000 Mbit/s", v)
	}
	return v, err
}

func parsePriority(s string) (int, error) {
	v, err := parseInt(s)
	if err == nil && !within(v, 0, 7) {
		err = fmt.Errorf("%d is not from 0 to 7", v)
	}
	return v, err
}

func parseUnsigned(s string) (uint64, error) {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(v, 10) != s {
		return 0, fmt.Errorf("%s is not a whole number from 0 to 18446744073709551615", quote(s))
	}
	return v, nil
}

func parseSize(s string) (Size, error) {
	digits := strings.TrimRight(s, "BKMGTibkmgt ")
	v, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || strconv.FormatUint(v, 10) != digits {
		return 0, fmt.Errorf("%s is not a size like 4096, 64KiB or 1GiB", quote(s))
	}
	for _, u := range units {
		if s != digits+u.name {
			continue
		}
		if v > uint64(^Size(0)/u.size) {
			return 0, fmt.Errorf("%s is too large", quote(s))
		}
		return Size(v) * u.size, nil
	}
	return 0, wrong(didYouMean(digits+unitLike(s[len(digits):])), "%s has an unknown unit", quote(s))
}

// ParseSize reads a size such as 64MiB.
func ParseSize(s string) (Size, error) { return parseSize(s) }

// parseSome is parseSize for settings in which 0 is not permitted.
func parseSome(s string) (Size, error) {
	v, err := parseSize(s)
	if err == nil && v == 0 {
		return 0, fmt.Errorf("a size of 0 is not possible")
	}
	return v, err
}

// unitLike returns the unit of Size that begins like the word.
func unitLike(word string) string {
	initial := strings.ToUpper(strings.TrimSpace(word) + "B")[:1]
	for _, u := range units[:5] {
		if strings.HasPrefix(u.name, initial) {
			return u.name
		}
	}
	return "B"
}

func parseDuration(s string) (time.Duration, error) {
	v, err := time.ParseDuration(s)
	switch {
	case err == nil && v < 0:
		return 0, fmt.Errorf("%s is negative", quote(s))
	case err == nil:
		return v, nil
	}
	if _, err := strconv.ParseUint(s, 10, 64); err == nil {
		return 0, wrong("us, ms, s, m or h", "%s has no unit", quote(s))
	}
	return 0, fmt.Errorf("%s is not a duration like 200us, 500ms or 1h", quote(s))
}

// parseDurable parses an interval, the word for no flushes, or 0 for group commit.
func parseDurable(s string) (time.Duration, error) {
	if s == "written" {
		return Written, nil
	}
	if meant, ok := suggest(s, []string{"written"}); ok {
		return 0, wrong(didYouMean(meant), "%s is neither written nor a duration", quote(s))
	}
	v, err := parseDuration(s)
	if err == nil && v == 0 {
		return GroupCommit, nil
	}
	return v, err
}

// parseMAC parses an Ethernet address.
func parseMAC(s string) (net.HardwareAddr, error) {
	mac, err := net.ParseMAC(s)
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf("%s is not an Ethernet address like 02:00:00:00:00:01", quote(s))
	}
	return mac, nil
}

// parseIP parses an IPv4 or IPv6 address.
func parseIP(s string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(s)
	if err != nil || ip.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%s is not an address like 10.0.0.1 or 2001:db8::1", quote(s))
	}
	return ip.Unmap(), nil
}

// parseAllQueues parses the word for all queues, which is a nil list.
func parseAllQueues(s string) ([]int, error) {
	if s == "all" {
		return nil, nil
	}
	hint := didYouMean("all")
	if _, err := parseInt(s); err == nil {
		hint = "did you mean [" + s + "]?"
	}
	return nil, wrong(hint, "%s is neither all nor a list of queue numbers", quote(s))
}
