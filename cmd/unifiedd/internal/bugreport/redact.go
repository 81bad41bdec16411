package bugreport

import (
	"bytes"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// redactor replaces addresses by a kind and a number: ip4-1, ip6-2, multicast-3, mac-4, guid-5. An
// address has the same number wherever it occurs, and in whatever form. Addresses that say nothing
// about a machine stay: loopback, the unspecified address, broadcast, and masks.
type redactor struct {
	host    *regexp.Regexp // nil: no name to replace
	numbers map[string]string
	counts  map[string]int
}

// newRedactor returns a redactor that also replaces the name of the host. A name of one or two letters stays:
// it would be found in other words, and says little.
func newRedactor(host string) *redactor {
	r := &redactor{numbers: make(map[string]string), counts: make(map[string]int)}
	if len(host) > 2 && host != "localhost" {
		r.host = regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(host) + `\b`)
	}
	return r
}

// number returns the replacement of an address.
func (r *redactor) number(kind, address string) string {
	key := kind + " " + address
	if _, ok := r.numbers[key]; !ok {
		r.counts[kind]++
		r.numbers[key] = fmt.Sprintf("%s-%d", kind, r.counts[kind])
	}
	return r.numbers[key]
}

// Candidates for addresses.
var (
	colons = regexp.MustCompile(`[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*`)                                      // MAC addresses, GUIDs, GIDs and IPv6 addresses
	dashes = regexp.MustCompile(`\b[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){5}\b`)                           // MAC addresses
	named  = regexp.MustCompile(`\b(enx|wlx|wwx)([0-9a-f]{12})`)                                      // names of interfaces with a MAC address
	hexes  = regexp.MustCompile(`\b(?:0x)?(?:fe80[0-9a-f]{28}|0{20}ffff[0-9a-f]{8})\b`)               // GIDs
	guids  = regexp.MustCompile(`\b(?:0x)?[0-9a-f]{6}fffe[0-9a-f]{6}\b`)                              // GUIDs
	dotted = regexp.MustCompile(`[0-9]{1,3}(?:\.[0-9]{1,3}){3}`)                                      // IPv4 addresses
	mac    = regexp.MustCompile(`^[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}(?:(?::[0-9A-Fa-f]{2}){14})?$`) // of 6 bytes, or 20 of InfiniBand
	guid   = regexp.MustCompile(`^[0-9A-Fa-f]{4}(?::[0-9A-Fa-f]{4}){3}$`)
)

// redact returns a text without addresses.
func (r *redactor) redact(text []byte) []byte {
	text = replaceWords(text, colons, r.colonWord)
	text = replaceWords(text, dotted, func(word string) string {
		if a, err := netip.ParseAddr(word); err == nil {
			return r.address(a, word)
		}
		return word
	})
	text = dashes.ReplaceAllFunc(text, func(word []byte) []byte {
		return []byte(r.mac(string(bytes.ReplaceAll(word, []byte("-"), []byte(":")))))
	})
	text = named.ReplaceAllFunc(text, func(word []byte) []byte { return append(word[:3:3], r.mac(split(string(word[3:]), 2))...) })
	text = hexes.ReplaceAllFunc(text, func(word []byte) []byte {
		if a, err := netip.ParseAddr(split(strings.TrimPrefix(string(word), "0x"), 4)); err == nil {
			return []byte(r.address(a, string(word)))
		}
		return word
	})
	text = guids.ReplaceAllFunc(text, func(word []byte) []byte {
		if digits := strings.TrimPrefix(string(word), "0x"); len(digits) == 16 {
			return []byte(r.guid(digits))
		}
		return word
	})
	if r.host != nil {
		text = r.host.ReplaceAll(text, []byte("host-1"))
	}
	return text
}

// replaceWords replaces what matches and is not part of a longer number.
func replaceWords(text []byte, candidates *regexp.Regexp, replace func(string) string) []byte {
	var out []byte
	last := 0
	for _, at := range candidates.FindAllIndex(text, -1) {
		word := string(text[at[0]:at[1]])
		if candidates == dotted && longer(text, at[0], at[1]) {
			continue
		}
		if candidates == colons && at[0] > 0 && isLetter(text[at[0]-1]) {
			head, rest, _ := strings.Cut(word, ":") // the end of a word before a colon
			out = append(append(append(out, text[last:at[0]]...), head+":"...), replace(rest)...)
			last = at[1]
			continue
		}
		out = append(append(out, text[last:at[0]]...), replace(word)...)
		last = at[1]
	}
	return append(out, text[last:]...)
}

// longer reports whether digits and points from one place to another are part of more of them, or of a
// version such as v1.2.3.4.
func longer(text []byte, from, to int) bool {
	if from > 0 && (isDigit(text[from-1]) || text[from-1] == '.' || text[from-1] == 'v') {
		return true
	}
	return to < len(text) && (isDigit(text[to]) || text[to] == '.' && to+1 < len(text) && isDigit(text[to+1]))
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || isDigit(c) }

// colonWord replaces a word of hexadecimal digits, colons and points.
func (r *redactor) colonWord(word string) string {
	whole := word
	for word != "" {
		switch a, err := netip.ParseAddr(word); {
		case mac.MatchString(word):
			return strings.Replace(whole, word, r.mac(word), 1)
		case guid.MatchString(word):
			return strings.Replace(whole, word, r.guid(strings.ReplaceAll(word, ":", "")), 1)
		case err == nil:
			return strings.Replace(whole, word, r.address(a, word), 1)
		}
		// Not an address as a whole: without what may follow one, then without what may precede one.
		if end := strings.TrimRight(word, ":."); end != word && !strings.HasSuffix(word, "::") {
			word = end
			continue
		}
		if head, port, ok := cutLast(word, ':'); ok && strings.Count(head, ":") > 1 && len(port) <= 5 {
			if _, err := netip.ParseAddr(head); err == nil || mac.MatchString(head) {
				word = head
				continue
			}
		}
		_, rest, ok := strings.Cut(word, ":")
		if !ok {
			return whole
		}
		word = rest
	}
	return whole
}

func cutLast(s string, sep byte) (before, after string, ok bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// address returns the replacement of an IP address or GID.
func (r *redactor) address(a netip.Addr, word string) string {
	a = a.Unmap().WithZone("")
	switch {
	case a.IsUnspecified() || a.IsLoopback() || a.Is4() && a.As4()[0] == 255: // masks, too
		return word
	case a.IsMulticast():
		return r.number("multicast", a.String())
	case a.Is4():
		return r.number("ip4", a.String())
	}
	return r.number("ip6", a.String())
}

// mac returns the replacement of a MAC address, in the form with colons.
func (r *redactor) mac(word string) string {
	key := strings.ToLower(word)
	if strings.Trim(key, "0:") == "" || strings.Trim(key, "f:") == "" {
		return word
	}
	return r.number("mac", key)
}

// guid returns the replacement of a GUID of 16 digits. That of an Ethernet port is its MAC address.
func (r *redactor) guid(digits string) string {
	digits = strings.ToLower(digits)
	if strings.Trim(digits, "0") == "" {
		return digits
	}
	return r.number("guid", digits)
}

// split puts a colon after each n characters.
func split(s string, n int) string {
	var b strings.Builder
	for i := 0; i < len(s); i += n {
		if i > 0 {
			b.WriteByte(':')
		}
		b.WriteString(s[i:min(i+n, len(s))])
	}
	return b.String()
}
