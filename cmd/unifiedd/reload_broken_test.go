package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/golden"
)

// broken are mistakes in the configuration of a running daemon, each as a replacement.
var broken = []struct{ what, old, new string }{
	{"no YAML", "flows:", "flows: ["},
	{"a tab", "  - name: cap", "\t- name: cap"},
	{"nothing at all", "*", ""},
	{"a list for a mapping", "*", "[]"},
	{"a second document", "flows:", "---\nflows:"},
	{"an unknown key", "flows:", "regoin: {}\nflows:"},
	{"an unknown key of an end", "ring:", "rings:"},
	{"a key twice", "ring: 512", "ring: 512, ring: 1024"},
	{"a flow without a name", "name: cap", "worker: main"},
	{"a name with spaces", "name: cap", "name: my capture"},
	{"a flow twice", "", "  - {name: cap, from: {interface: eth7}, to: {file: /c/x}}\n"},
	{"a flow behind one that takes all", "", "  - {name: b, from: {interface: IFACE}, to: {file: /c/x}}\n"},
	{"a file twice", "", "  - {name: b, from: {interface: eth7}, to: {file: DIR/cap}}\n"},
	{"an address twice", "", "  - {name: b, from: {rdma: mlx5_0, listen: \":7471\"}, to: {file: /c/b}}\n  - {name: c, from: {rdma: mlx5_0, listen: \"10.0.0.1:7471\"}, to: {file: /c/c}}\n"},
	{"a device that is served and written", "", "  - {name: b, from: {interface: eth7}, to: {device: /dev/sdx}}\n  - {name: c, from: {device: /dev/sdx}, to: {rdma: mlx5_0, listen: \":1\"}}\n"},
	{"RoCE on a captured interface", "", "  - {name: b, from: {rdma: \"roce:IFACE\", listen: \":7471\"}, to: {file: /c/b}}\n"},
	{"a flow from nowhere", ", interface: IFACE", ""},
	{"a flow to nowhere", ", file: DIR/cap", ""},
	{"two beginnings", "interface: IFACE", "rdma: mlx5_0, interface: IFACE"},
	{"a setting without a meaning", "flush: 50ms", "peers: []"},
	{"a ring that is no power of two", "ring: 512", "ring: 500"},
	{"a size that is none", "size: 16MiB", "size: 16MB"},
	{"a segment that is too small", "size: 16MiB", "size: 16KiB"},
	{"a time without a unit", "flush: 50ms", "flush: 50"},
	{"a time that is too long", "flush: 50ms", "flush: 50s"},
	{"a relative path", "file: DIR/cap", "file: cap"},
	{"a filter with a mistake", "ring: 512", "ring: 512, filter: \"udp and prot 5\""},
	{"a worker that is not there", "- name: cap", "- name: cap\n    worker: fast"},
	{"peers without names", "", "  - {name: b, from: {interface: eth7}, to: {rdma: mlx5_0, peers: [{address: \"h:1\"}]}}\n"},
	{"another region", "64MiB", "128MiB"},
	{"more extents", "extents: 8", "extents: 9"},
	{"other pages", "region: {", "region: {pages: ordinary, "},
	{"another worker", "flows:", "workers: [{name: main, sleep: 1ms}]\nflows:"},
	{"another user", "flows:", "user: nobody\nflows:"},
	{"another log", "flows:", "log: {format: json}\nflows:"},
	{"metrics on the network", "flows:", "metrics: {listen: \":9300\"}\nflows:"},
	{"another control socket", "flows:", "control: {socket: /run/other.sock}\nflows:"},
	{"secrets", "flows:", "tls: {certificate: /a, key: /b, authority: /c}\nflows:"},
}

// TestReloadBroken: the daemon answers each mistake with its place in the file, and changes nothing.
func TestReloadBroken(t *testing.T) {
	s := startServed(t)
	s.start(t)
	names := strings.NewReplacer("IFACE", s.pair.B.Ifname, "DIR", filepath.Dir(s.file))
	general := strings.NewReplacer(s.pair.B.Ifname, "IFACE", filepath.Dir(s.file), "DIR")
	flow := s.Flows()[0]
	since := flow.Status().Since
	var all strings.Builder
	for _, b := range broken {
		text := s.capture(t, "")
		switch old := names.Replace(b.old); b.old {
		case "*":
			text = b.new
		case "":
			text += names.Replace(b.new)
		default:
			if !strings.Contains(text, old) {
				t.Fatalf("%s: there is no %q", b.what, old)
			}
			text = strings.Replace(text, old, names.Replace(b.new), 1)
		}
		s.write(t, text)
		code, out, errs := s.command(t, "reload")
		fmt.Fprintf(&all, "# %s\n%s\n", b.what, general.Replace(errs))
		if code != exitFailed || out != "" || !place.MatchString(errs) {
			t.Errorf("%s: it ends with %d: %s%s", b.what, code, out, errs)
		}
		if now := s.Flows(); len(now) != 1 || now[0] != flow || !flow.Status().Since.Equal(since) || flow.Status().State != status.Running {
			t.Fatalf("%s: the flow is touched: %+v", b.what, now)
		}
	}
	if c := s.Status().Config; c.Generation != 1 || c.Reloads[status.Refused] != uint64(len(broken)) {
		t.Errorf("the status is %+v", c)
	}
	golden.Compare(t, "testdata/broken.txt", all.String())
}

// place matches an answer. Each line that is not indented begins with a place in the file.
var place = regexp.MustCompile(`^(/\S+/test\.yaml:[1-9]\d*:[1-9]\d*: .+\n( .*\n)*)+$`)
