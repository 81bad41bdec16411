package documents

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// receiverDocument is the configuration of a flow that is reached over two paths.
const receiverDocument = "paths.md.1"

// The parts of configurations in docs/paths.md, in their order.
const (
	standbyPart = iota
	activePart
	channelPart
	groupPart
	relayPart
)

// indented matches a part of a configuration in a document.
var indented = regexp.MustCompile(`(?m)(^    \S.*\n(    .*\n)*)`)

// part returns a part of a configuration in docs/paths.md, with another indentation.
func part(t *testing.T, number, indentation int) string {
	t.Helper()
	all := indented.FindAllString(fence.ReplaceAllString(read(t, root+"/docs/paths.md"), ""), -1)
	if len(all) <= number {
		t.Fatalf("docs/paths.md has %d parts of configurations", len(all))
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

// give appends messages to the flow of a sender.
func give(t *testing.T, from *testenv.End, host int) {
	t.Helper()
	daemon.StartClient(t, flowTest, from, "append", "-to", fmt.Sprintf("10.0.0.%d:7471", host), "-flow", "sender", "-count", fmt.Sprint(appended),
		"-device", "roce:eth2", "-ordinary", "-memory", "33554432", "-timeout", "30s").Await(t, 40*time.Second)
}

// states returns the states of the paths to the only peer of a flow.
func states(s *status.Daemon) (all []string) {
	if len(s.Flows) != 1 || s.Flows[0].Sends == nil {
		return nil
	}
	for _, p := range s.Flows[0].Sends.Peers[0].Paths {
		all = append(all, p.State)
	}
	return all
}

// TestPaths: with the configurations of the document a daemon sends messages over two paths, one at a time or both at once,
// to the flow of another one.
func TestPaths(t *testing.T) {
	testenv.Long(t, "selftests/paths has these paths")
	testenv.Root(t)
	testenv.HugePages(t, 294<<20)
	for number, want := range map[int][]string{standbyPart: {"connected", "standby"}, activePart: {"connected", "connected"}} {
		ends := hosts(t, 3)
		to, from := newFiles(t), newFiles(t)
		receiver := daemon.Launch(t, to.wrapper, ends[0], to.dir, named(t, receiverDocument))
		receiver.Running(t) // a path that was refused counts as failed until it is needed
		d := daemon.Launch(t, from.wrapper, ends[1], from.dir, sender(t, 2, number))
		d.Until(t, fmt.Sprintf("paths that are %q", want), func(s *status.Daemon) bool { return slices.Equal(states(s), want) })
		give(t, ends[2], 2)
		receiver.Until(t, "the log to have all messages", func(s *status.Daemon) bool { return s.Flows[0].Packets == appended })
		d.Terminate(t)
		receiver.Terminate(t)
	}
}

// TestChannelOverPaths: a channel goes on to another machine over two paths.
func TestChannelOverPaths(t *testing.T) {
	testenv.Long(t, "selftests/attach has such channels")
	testenv.Root(t)
	writer, readers, found := strings.Cut(part(t, channelPart, 2), "  # the readers' machine\n")
	if !found {
		t.Fatal("docs/paths.md does not say what the readers' machine has")
	}
	var texts [2]string
	for i, flows := range []string{writer, readers} {
		head, _, _ := strings.Cut(named(t, []string{writerDocument, readersDocument}[i]), "flows:\n")
		texts[i] = head + "flows:\n" + flows
	}
	daemons := passOn(t, texts)
	daemons[0].Until(t, "one path to carry the channel", func(s *status.Daemon) bool {
		return slices.Equal(states(s), []string{"connected", "standby"})
	})
}

// TestGroupOverPaths: the members of a group that have two paths to each other, and a relay that has two paths to each of
// them, accept their configurations. TestGroup in selftests/paths runs such a group.
func TestGroupOverPaths(t *testing.T) {
	testenv.Root(t)
	text := "flows:\n  - name: orders\n" + part(t, groupPart, 4)
	for n, e := range hosts(t, 4) {
		f := newFiles(t)
		own := sender(t, 4, relayPart)
		if n < 3 {
			own = ofMember(text, n)
		}
		f.write(t, "shown.yaml", own, 0o644)
		if out, err := e.Command(f.wrapper, "check", "-c", filepath.Join(f.dir, "shown.yaml")).CombinedOutput(); err != nil {
			t.Errorf("host %d: %v\n%s", n+1, err, out)
		}
	}
}
