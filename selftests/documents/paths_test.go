package documents

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// The parts of configurations in docs/how-to/paths.md, in their order.
const (
	standbyPart = iota
	activePart
	channelPart
	groupPart
	relayPart
)

// indented matches a part of a configuration in a document.
var indented = regexp.MustCompile(`(?m)(^    \S.*\n(    .*\n)*)`)

// part returns a part of a configuration in docs/how-to/paths.md, with another indentation.
func part(t *testing.T, number, indentation int) string {
	t.Helper()
	all := indented.FindAllString(fence.ReplaceAllString(read(t, root+"/docs/how-to/paths.md"), ""), -1)
	if len(all) <= number {
		t.Fatalf("docs/how-to/paths.md has %d parts of configurations", len(all))
	}
	return strings.ReplaceAll("\n"+strings.TrimSuffix(all[number], "\n"), "\n    ", "\n"+strings.Repeat(" ", indentation))[1:] + "\n"
}

// hosts makes hosts in two networks: eth2 of the first one has the address 10.0.0.1, and eth3 has 10.1.0.1.
func hosts(t *testing.T, n int) []*testenv.End {
	t.Helper()
	o := testenv.PairOptions{MTU: 4200}
	first := testenv.NewSwitch(t, n, o)
	for network, ends := range [][]*testenv.End{first, testenv.SecondSwitch(t, first, o)} {
		for i, e := range ends {
			rename(t, e, fmt.Sprintf("eth%d", 2+network), fmt.Sprintf("10.%d.0.%d/24", network, i+1))
		}
	}
	return first
}

// sender returns the configuration of a daemon at a host, which sends as a part of the document says.
func sender(t *testing.T, host, number int) string {
	t.Helper()
	return fmt.Sprintf(`region: {size: 64MiB, pages: ordinary}
flows:
  - name: sender
    from: {rdma: "roce:eth2", listen: "10.0.0.%d:7471", message: 1KiB, clients: 1, window: 32}
`, host) + part(t, number, 4)
}

// TestPaths: daemons that have two paths to each other accept the parts of configurations in the document: a sender with
// one path at a time and with both, the machines of a channel, the members of a group, and a relay to them. selftests/paths
// and selftests/attach start such daemons.
func TestPaths(t *testing.T) {
	testenv.Root(t)
	group := "flows:\n  - name: orders\n" + part(t, groupPart, 4)
	writer, readers, found := strings.Cut(part(t, channelPart, 2), "  # the readers' machine\n")
	if !found {
		t.Fatal("docs/how-to/paths.md does not say what the readers' machine has")
	}
	channel := func(name, flows string) string {
		all := documents(t)
		i := slices.IndexFunc(all, func(d document) bool { return d.name == name })
		head, _, _ := strings.Cut(all[i].text, "flows:\n")
		return head + "flows:\n" + flows
	}
	ends := hosts(t, 4)
	for i, c := range []struct {
		host int
		text string
	}{{3, sender(t, 4, standbyPart)}, {3, sender(t, 4, activePart)}, {0, channel("attach.md.5", writer)}, {1, channel("attach.md.6", readers)},
		{0, ofMember(group, 0)}, {1, ofMember(group, 1)}, {2, ofMember(group, 2)}, {3, sender(t, 4, relayPart)}} {
		f := newFiles(t)
		f.write(t, "shown.yaml", c.text, 0o644)
		if out, err := ends[c.host].Command(f.wrapper, "check", "-c", filepath.Join(f.dir, "shown.yaml")).CombinedOutput(); err != nil {
			t.Errorf("configuration %d, host %d: %v\n%s", i, c.host+1, err, out)
		}
	}
}

// ofMember changes the configuration of the first member into that of another one.
func ofMember(text string, n int) string {
	return strings.NewReplacer("self: a", fmt.Sprintf("self: %c", 'a'+n), "listen: 10.0.0.1", fmt.Sprintf("listen: 10.0.0.%d", n+1),
		`listen: "10.0.0.1`, fmt.Sprintf(`listen: "10.0.0.%d`, n+1), `listen: "10.1.0.1`, fmt.Sprintf(`listen: "10.1.0.%d`, n+1)).Replace(text)
}

// rename gives an interface the name and the address that a document has.
func rename(t *testing.T, e *testenv.End, name, address string) {
	t.Helper()
	e.Run(t, "ip", "link", "set", e.Ifname, "down")
	e.Run(t, "ip", "link", "set", e.Ifname, "name", name)
	e.Run(t, "ip", "link", "set", name, "up")
	e.Run(t, "ip", "address", "flush", "dev", name)
	e.Run(t, "ip", "address", "add", address, "dev", name)
}
