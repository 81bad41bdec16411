package config

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/unifiedd/unifiedd/internal/netdev"
)

// taken finds settings which may be had once and are had twice.
type taken[T comparable] struct {
	v     *validator
	what  string       // what is taken
	first map[T]string // the path of the one who came first
}

func newTaken[T comparable](v *validator, what string) *taken[T] {
	return &taken[T]{v: v, what: what, first: map[T]string{}}
}

// take refuses the setting at path if another has its value. An empty text takes
// nothing.
func (t *taken[T]) take(path string, value T) {
	if any(value) == "" || t.v.explained(path) {
		return
	}
	if first, ok := t.first[value]; ok {
		t.v.refuse(path, fmt.Errorf("%s %s is taken already, by %s%s", t.what, show(value), first, t.v.inLine(first)))
		return
	}
	t.first[value] = path
}

// show puts a value into a message, texts quoted.
func show(value any) string {
	if s, ok := value.(string); ok {
		return quote(s)
	}
	return fmt.Sprint(value)
}

// inLine is " in line N" for a setting which is in the file.
func (r *report) inLine(path string) string {
	if at, ok := r.places[path]; ok {
		return " in line " + strconv.Itoa(at.Line)
	}
	return ""
}

func within[T cmp.Ordered](v, low, high T) bool { return low <= v && v <= high }

func powerOfTwo(v uint64) bool { return bits.OnesCount64(v) == 1 }

func sizeBetween(s, low, high Size) error {
	switch {
	case s < low:
		return fmt.Errorf("at least %s is needed", low)
	case s > high:
		return fmt.Errorf("at most %s is possible", high)
	}
	return nil
}

// isUser accepts what useradd does and numbers, leaving the last word to the
// user database.
func isUser(s string) bool {
	bad := func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune(" :/,", r) }
	return s != "" && len(s) <= maxName && s[0] != '-' && !strings.ContainsFunc(s, bad)
}

// checkInterface says what the kernel has against a name, or an alternative name.
func checkInterface(name string) error {
	if name == "" { // refused as missing
		return nil
	}
	return netdev.ValidName(name)
}

// checkComment says what pcapng has against a comment, and how long it may be (internal/pcapng).
func checkComment(text string) error {
	switch {
	case len(text) > maxComment:
		return fmt.Errorf("the comment has %d bytes; at most %d are possible", len(text), maxComment)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return errors.New("the comment is not UTF-8 text")
	}
	return nil
}

// checkAddress wants host:port; the host may be empty, the port is a number.
func checkAddress(s, example string) error {
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%s is not an address with a port, like %s", quote(s), example)
	}
	return nil
}

// checkPeer wants the address of someone: neither host nor port are left open.
func checkPeer(s string) error {
	if err := checkAddress(s, "10.0.0.2:7471"); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(s)
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		return fmt.Errorf("%s names no host to connect to", quote(s))
	}
	if n, _ := strconv.ParseUint(port, 10, 16); n == 0 {
		return fmt.Errorf("%s has no port to connect to", quote(s))
	}
	return nil
}

// checkRDMA wants the name of an RDMA device. The kernel's have 63 bytes at most
// (IB_DEVICE_NAME_MAX, rdma/ib_verbs.h).
func checkRDMA(name string) error {
	iface, is := SoftDevice(name)
	bad := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '/' || r == ':' }
	switch {
	case is && iface == "":
		return wrong(didYouMean(SoftPrefix+"eth1"), "%s names no interface", quote(name))
	case is:
		return checkInterface(iface)
	case len(name) > maxDevice || strings.ContainsFunc(name, bad):
		return wrong("roce:INTERFACE, or a device's name like mlx5_0", "%s cannot be the name of an RDMA device", quote(name))
	}
	return nil
}

// checkPath wants an absolute path of at most limit bytes.
func checkPath(path string, limit int) error {
	switch {
	case !filepath.IsAbs(path):
		return fmt.Errorf("%s is not an absolute path", quote(path))
	case len(path) > limit:
		return fmt.Errorf("the path has %d bytes; at most %d are possible", len(path), limit)
	case strings.ContainsFunc(path, unicode.IsControl):
		return errors.New("the path has control characters")
	case strings.HasSuffix(path, "/"):
		return errors.New("the path ends with a slash; the name of a file is needed")
	}
	return nil
}

// checkPrefix is checkPath for the prefix of the segments' names.
func checkPrefix(path string) error {
	if err := checkPath(path, maxPath); err != nil {
		return err
	}
	if n := len(filepath.Base(path)); n > maxBase {
		return fmt.Errorf("the name has %d bytes; at most %d leave room for time and number", n, maxBase)
	}
	return nil
}

// clean is the shortest form of a path, and empty for none.
func clean(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Clean(path)
}
