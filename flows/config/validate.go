package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
)

// Bounds of settings. An extent holds the longest packet XDP passes on: 45
// fragments of a page (the most MAX_SKB_FRAGS can be, net/Kconfig) and the linear
// part. The number of CPUs is the kernel's largest NR_CPUS, that of nodes
// 1 << NODES_SHIFT (arch/x86/Kconfig); a unix socket's path has 107 bytes (struct
// sockaddr_un).
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
	maxSleep    = 100 * time.Millisecond
	maxPoll     = time.Second
	minFlush    = 10 * time.Millisecond
	maxFlush    = time.Second
	minDurable  = time.Millisecond
)

// Validate checks a Config built by a program. The error is an [*Errors] whose
// problems have no place. Call [Config.Complete] first.
func (c *Config) Validate(o Options) error {
	r := newReport(nil)
	validate(r, c, o)
	return r.err()
}

// validator checks values and what they have to do with each other.
type validator struct {
	*report
	*Config
	Options
	devices map[string]netdev.Device // interfaces that were found, by name
	link    linktype.Type            // of the packets that filters of the flow are about that is being checked
}

func validate(r *report, c *Config, o Options) {
	v := &validator{report: r, Config: c, Options: o, devices: map[string]netdev.Device{}}
	v.region()
	v.workers()
	v.services()
	v.tls()
	v.flows()
	v.sameProcess()
}

// check refuses the setting at path unless ok.
func (v *validator) check(ok bool, path, format string, args ...any) {
	if !ok {
		v.refuse(path, fmt.Errorf(format, args...))
	}
}

// checkErr refuses the setting at path for an error.
func (v *validator) checkErr(path string, err error) {
	if err != nil {
		v.refuse(path, err)
	}
}

func (v *validator) region() {
	r := &v.Region
	v.checkErr("region.pages", member(r.Pages, allPages))
	v.check(r.Frame == 2048 || r.Frame == 4096, "region.frame", "%d is neither 2048 nor 4096", r.Frame)
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

// extents checks that the extents fit and are enough.
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

// first is the first of some paths which is in the file, or the very first.
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
		v.check(within(w.Sleep, time.Microsecond, maxSleep), path, "%s is not from 1us to %s", w.Sleep, maxSleep)
	} else if _, ok := v.places[path]; ok {
		v.refuse(path, wrong("remove it, or say wait: sleep", "has no use with wait: %s", w.Wait))
	}
}

// services checks what is neither memory nor data path.
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
}

// tls checks that there are all of the files, or none.
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

// given tells whether an optional text is there, if only as an empty one.
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
