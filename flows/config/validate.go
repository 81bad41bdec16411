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
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
)

// Bounds of settings. An extent holds the longest packet that XDP passes on: 45 fragments of a page
// (the largest MAX_SKB_FRAGS, net/Kconfig) and the linear part. The limit for CPUs is the kernel's
// largest NR_CPUS, the limit for nodes is 1 << NODES_SHIFT (arch/x86/Kconfig). The path of a unix
// socket has at most 107 bytes (struct sockaddr_un).
const (
	minRegion   = 4 * MiB
	maxRegion   = 64 * TiB
	minExtent   = 256 * KiB
	maxExtent   = 64 * MiB
	maxCPU      = 8191
	maxNode     = 1023
	maxName     = 32
	maxSocket   = 107
	maxComment  = 4096
	maxFilePath = 4095
	minEvents   = 64
	maxEvents   = 1 << 20
	maxSleep    = 100 * time.Millisecond
	maxPoll     = time.Second
	minFlush    = 10 * time.Millisecond
	maxFlush    = time.Second
	minDurable  = time.Millisecond
)

// Validate checks a Config that a program built. The error is an [*Errors] whose problems have no
// place. Call [Config.Complete] first.
func (c *Config) Validate(o Options) error {
	r := newReport(nil)
	validate(r, c, o)
	return r.err()
}

// validator checks each value alone and against the others.
type validator struct {
	*report
	*Config
	Options
	devices map[string]netdev.Device // interfaces that were found, by name
	link    linktype.Type            // of the packets that the current flow filters
}

func validate(r *report, c *Config, o Options) {
	v := &validator{report: r, Config: c, Options: o, devices: map[string]netdev.Device{}}
	v.region()
	v.workers()
	v.services()
	v.tls()
	v.cluster()
	v.attach()
	v.flows()
	v.sameProcess()
}

// check refuses the setting at path if ok is false.
func (v *validator) check(ok bool, path, format string, args ...any) {
	if !ok {
		v.refuse(path, fmt.Errorf(format, args...))
	}
}

// checkErr refuses the setting at path if err is not nil.
func (v *validator) checkErr(path string, err error) {
	if err != nil {
		v.refuse(path, err)
	}
}

func (v *validator) region() {
	r := &v.Region
	v.checkErr("region.pages", member(r.Pages, allPages))
	v.check(r.Frame == 2048 || r.Frame == 4096, "region.frame", "%d is neither 2048 nor 4096", r.Frame)
	if r.Device != "" {
		v.check(filepath.IsAbs(r.Device), "region.device", "%q is not an absolute path (such as /dev/dax0.0)", r.Device)
		v.check(r.Pages != PagesOrdinary, "region.device", "a region on a device has no ordinary pages (set region.pages to 2MiB, or as the device is aligned)")
	}
	if r.Node != nil {
		v.check(within(*r.Node, 0, maxNode), "region.node", "%d is not from 0 to %d", *r.Node, maxNode)
	}
	v.checkErr("region.size", sizeBetween(r.Size, minRegion, maxRegion))
	extent := sizeBetween(r.Extent, minExtent, maxExtent)
	if extent == nil && !powerOfTwo(uint64(r.Extent)) {
		extent = fmt.Errorf("%s is not a power of two", r.Extent)
	}
	v.checkErr("region.extent", extent)
	if extent == nil {
		v.extents()
	}
}

// extents checks that the extents fit into the region and suffice.
func (v *validator) extents() {
	r := &v.Region
	if r.Extents < 1 {
		v.refuse("region.extents", fmt.Errorf("at least 1 is needed"))
		return
	}
	if r.Frame == 2048 || r.Frame == 4096 {
		v.needed()
	}
}

// first returns the first of some paths that the file has, or else the first path.
func (v *validator) first(paths ...string) string {
	for _, p := range paths {
		if _, ok := v.places[p]; ok {
			return p
		}
	}
	return paths[0]
}

func (v *validator) workers() {
	names, cpus := newTaken[string](v, "worker"), newTaken[int](v, "CPU")
	v.check(len(v.Workers) > 0, "workers", "at least one is needed")
	for i, w := range v.Workers {
		path := index("workers", i)
		v.name(join(path, "name"), w.Name)
		names.take(join(path, "name"), w.Name)
		v.checkErr(join(path, "wait"), member(w.Wait, allWaits))
		v.sleep(join(path, "sleep"), w)
		if w.CPU == nil {
			continue
		}
		v.check(within(*w.CPU, 0, maxCPU), join(path, "cpu"), "%d is not from 0 to %d", *w.CPU, maxCPU)
		cpus.take(join(path, "cpu"), *w.CPU)
	}
}

func (v *validator) sleep(path string, w Worker) {
	if w.Wait == WaitSleep {
		v.check(w.Sleep == 0 || within(w.Sleep, time.Microsecond, maxSleep), path, "%s is neither 0s nor from 1us to %s", w.Sleep, maxSleep)
	} else if _, ok := v.places[path]; ok {
		v.refuse(path, wrong("remove it, or say wait: sleep", "has no use with wait: %s", w.Wait))
	}
}

// services checks the log, the user, the metrics and the control socket.
func (v *validator) services() {
	v.checkErr("log.level", member(v.Log.Level, allLevels))
	v.checkErr("log.format", member(v.Log.Format, allFormats))
	if v.given("user", v.User) {
		v.check(isUser(v.User), "user", "%s is not a user's name or number", quote(v.User))
	}
	if v.given("metrics.listen", v.Metrics.Listen) {
		v.checkErr("metrics.listen", checkAddress(v.Metrics.Listen, "127.0.0.1:9300"))
	}
	v.checkErr("control.socket", checkPath(v.Control.Socket, maxSocket))
	v.checkErr("control.state", checkPath(v.Control.State, maxFilePath))
	if v.given("trace.directory", v.Trace.Directory) {
		v.checkErr("trace.directory", checkPath(v.Trace.Directory, maxFilePath))
	}
	if n := v.Trace.Events; n != 0 {
		v.check(within(n, minEvents, maxEvents) && powerOfTwo(uint64(n)), "trace.events", "%d is not 0, and not a power of two from %d to %d", n, minEvents, maxEvents)
	}
}

// tls checks that all of the files are configured, or none.
func (v *validator) tls() {
	files := []struct{ path, file, what string }{
		{"tls.certificate", v.TLS.Certificate, "the certificate's PEM file"},
		{"tls.key", v.TLS.Key, "the PEM file of the certificate's key"},
		{"tls.authority", v.TLS.Authority, "the PEM file of the authority which signs peers' certificates"},
	}
	if _, given := v.places["tls"]; !given && v.TLS == (TLS{}) {
		return
	}
	for _, f := range files {
		if v.need(f.path, f.file, f.what) {
			v.checkErr(f.path, checkPath(f.file, maxFilePath))
		}
	}
}

// given reports whether an optional text is configured, even if it is empty.
func (v *validator) given(path, text string) bool {
	_, ok := v.places[path]
	return ok || text != ""
}

// name checks the name of a worker or a flow.
func (v *validator) name(path, name string) {
	ok := len(name) <= maxName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
	v.need(path, name, "a name")
	v.check(ok, path, "%s is not a name: up to %d of a-z, 0-9 and -", quote(name), maxName)
}

// need refuses an empty text.
func (v *validator) need(path, text, what string) bool {
	v.check(text != "", path, "%s is needed", what)
	return text != ""
}

// taken finds values that only one setting may have.
type taken[T comparable] struct {
	v     *validator
	what  string       // the kind of value, for messages
	first map[T]string // the path of the first setting with the value
}

func newTaken[T comparable](v *validator, what string) *taken[T] {
	return &taken[T]{v: v, what: what, first: map[T]string{}}
}

// take refuses the setting at path if another one has the same value. It ignores an empty text.
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

// show formats a value for a message. It quotes texts.
func show(value any) string {
	if s, ok := value.(string); ok {
		return quote(s)
	}
	return fmt.Sprint(value)
}

// inLine returns " in line N" for a setting that the file has.
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

// isUser accepts numbers and names that useradd accepts. The user database decides later.
func isUser(s string) bool {
	bad := func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune(" :/,", r) }
	return s != "" && len(s) <= maxName && s[0] != '-' && !strings.ContainsFunc(s, bad)
}

// checkInterface returns an error for a name that the kernel does not accept as a name or an
// alternative name.
func checkInterface(name string) error {
	if name == "" { // reported as missing
		return nil
	}
	return netdev.ValidName(name)
}

// checkComment returns an error for a comment that pcapng does not permit or that is too long
// (internal/pcapng).
func checkComment(text string) error {
	switch {
	case len(text) > maxComment:
		return fmt.Errorf("the comment has %d bytes; at most %d are possible", len(text), maxComment)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return errors.New("the comment is not UTF-8 text")
	}
	return nil
}

// checkAddress requires host:port. The host may be empty; the port is a number.
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

// checkPeer requires the address of a peer, with a host and a port.
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

// checkRDMA requires the name of an RDMA device. The names of kernel devices have at most 63 bytes
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

// checkPath requires an absolute path of at most limit bytes.
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

// checkPrefix is checkPath for the prefix of the segments' names, or for the name of the only file.
func checkPrefix(path string, only bool) error {
	if err := checkPath(path, maxPath); err != nil {
		return err
	}
	switch n := len(filepath.Base(path)); {
	case only && n > maxBase+maxSuffix:
		return fmt.Errorf("the name has %d bytes; at most %d are possible", n, maxBase+maxSuffix)
	case !only && n > maxBase:
		return fmt.Errorf("the name has %d bytes; at most %d leave room for time and number", n, maxBase)
	}
	return nil
}

// clean returns the shortest form of a path; empty for an empty path.
func clean(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Clean(path)
}
