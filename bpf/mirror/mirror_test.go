package mirror

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// forms are the ways to attach programs: links, and filters as before Linux 6.6.
var forms = map[string]bool{"links": false, "filters": true}

// open mirrors end B in both directions until the test ends.
func open(t *testing.T, p *testenv.Pair, filters bool) (m *Mirror) {
	t.Helper()
	p.B.Do(t, func() {
		var err error
		m, err = Open(Config{Interface: p.B.Ifname, Directions: []Direction{Ingress, Egress}, Promiscuous: true, filters: filters})
		if err == nil {
			err = m.Start()
		}
		testenv.Must(t, err)
	})
	t.Cleanup(func() {
		testenv.Checkf(t, m.Close(), "close")
	})
	return m
}

// nothingLeft checks that the namespace of end B is as it was.
func nothingLeft(t *testing.T, p *testenv.Pair) {
	t.Helper()
	if links := p.B.Run(t, "ip", "-o", "link"); strings.Contains(links, "ufd-") {
		t.Errorf("a veth pair is left: %s", links)
	}
	if qdiscs := p.B.Run(t, testenv.Tool(t, "tc"), "qdisc", "show", "dev", p.B.Ifname); strings.Contains(qdiscs, "clsact") {
		t.Errorf("a qdisc is left: %s", qdiscs)
	}
}

// TestMirror: the mirror copies a ping and its answers, each to the queue of its direction, and Close leaves
// nothing behind.
func TestMirror(t *testing.T) {
	testenv.Root(t)
	for form, filters := range forms {
		t.Run(form, func(t *testing.T) {
			testenv.Leaks(t)
			p := testenv.NewPair(t, testenv.PairOptions{})
			m := open(t, p, filters)
			p.A.Run(t, "ping", "-c", "3", "-i", "0.01", p.B.IP.String())
			far := func() uint64 {
				var n uint64
				p.B.Do(t, func() {
					l, err := m.handle.LinkByIndex(m.pair.far)
					testenv.Must(t, err)
					n = l.Attrs().Statistics.RxPackets
				})
				return n
			}
			testenv.Wait(t, 10*time.Second, "copies of three pings and three answers", func() bool { return far() >= 6 })
			if _, up, err := m.Check(); !up || err != nil {
				t.Errorf("check: up %v, %v", up, err)
			}
			if c, err := m.Counters(); err != nil || c != (Counters{}) {
				t.Errorf("lost %+v, %v", c, err)
			}
			testenv.Check(t, m.Stop())
			before := far()
			p.A.Run(t, "ping", "-c", "3", "-i", "0.01", p.B.IP.String())
			if after := far(); after != before {
				t.Errorf("%d copies came after Stop", after-before)
			}
			last, err := m.Counters()
			testenv.Check(t, err)
			testenv.Check(t, m.Close())
			if c, err := m.Counters(); c != last || err != nil {
				t.Errorf("closed, it counts %+v, and before %+v: %v", c, last, err)
			}
			nothingLeft(t, p)
		})
	}
}

// TestTwoMirrors: two mirrors of one interface are independent: closing one does not affect the
// other. An earlier clsact stays.
func TestTwoMirrors(t *testing.T) {
	testenv.Root(t)
	for form, filters := range forms {
		t.Run(form, func(t *testing.T) {
			p := testenv.NewPair(t, testenv.PairOptions{})
			one, two := open(t, p, filters), open(t, p, filters)
			if one.Interface() == two.Interface() {
				t.Fatalf("both have %s", one.Interface())
			}
			testenv.Check(t, one.Close())
			if _, _, err := two.Check(); err != nil {
				t.Errorf("the other is gone with the one: %v", err)
			}
			testenv.Check(t, two.Close())
			p.B.Run(t, testenv.Tool(t, "tc"), "qdisc", "add", "dev", p.B.Ifname, "clsact")
			three := open(t, p, filters)
			testenv.Check(t, three.Close())
			if q := p.B.Run(t, "tc", "qdisc", "show", "dev", p.B.Ifname); !strings.Contains(q, "clsact") {
				t.Errorf("somebody's clsact is gone: %s", q)
			}
		})
	}
}

// TestDetached: Check reports that another process has detached the programs.
func TestDetached(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	m := open(t, p, true)
	p.B.Run(t, testenv.Tool(t, "tc"), "filter", "del", "dev", p.B.Ifname, "egress")
	if _, _, err := m.Check(); !errors.Is(err, errDetached) {
		t.Errorf("a filter that is gone: %v", err)
	}
	linked := open(t, p, false)
	if len(linked.links) == 0 {
		return // before Linux 6.6 both forms are filters
	}
	testenv.Must(t, linked.links[0].Detach())
	if _, _, err := linked.Check(); !errors.Is(err, errDetached) {
		t.Errorf("a link without its interface: %v", err)
	}
}

// TestGone: Check reports that the mirrored interface was removed.
func TestGone(t *testing.T) {
	testenv.Root(t)
	for form, filters := range forms {
		t.Run(form, func(t *testing.T) {
			testenv.Leaks(t)
			p := testenv.NewPair(t, testenv.PairOptions{})
			m := open(t, p, filters)
			p.A.Delete(t)
			if _, _, err := m.Check(); !errors.Is(err, ErrGone) {
				t.Errorf("check: %v", err)
			}
			testenv.Check(t, m.Close())
		})
	}
}

func TestRefuses(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	p.B.Run(t, "ip", "tuntap", "add", "tun0", "mode", "tun")
	for name, want := range map[string]error{"nowhere": ErrGone, "tun0": errNotEthernet} {
		p.B.Do(t, func() {
			if _, err := Open(Config{Interface: name, Directions: []Direction{Ingress}}); !errors.Is(err, want) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	nothingLeft(t, p)
}

// mirrored is set for a child process: it mirrors the interface of this name until it is killed.
const mirrored = "UNIFIEDD_MIRRORED"

func TestMain(m *testing.M) {
	name, is := os.LookupEnv(mirrored)
	if !is {
		os.Exit(m.Run())
	}
	name, filters := strings.CutSuffix(name, "+filters")
	child, err := Open(Config{Interface: name, Directions: []Direction{Ingress, Egress}, filters: filters})
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		panic(err)
	}
	said := "filters"
	if len(child.links) > 0 {
		said = "links"
	}
	_, _ = os.Stdout.WriteString(said)
	time.Sleep(time.Hour)
}

// TestKilled: sweep removes the mirror of a killed process and leaves mirrors of living ones alone.
func TestKilled(t *testing.T) {
	testenv.Root(t)
	for form, filters := range forms {
		t.Run(form, func(t *testing.T) {
			p := testenv.NewPair(t, testenv.PairOptions{})
			name := p.B.Ifname
			if filters {
				name += "+filters"
			}
			child := p.B.Command(os.Args[0])
			child.Env = append(os.Environ(), mirrored+"="+name)
			said := awaitOutput(t, child)
			sweeps := func() {
				t.Helper()
				p.B.Do(t, func() { testenv.Check(t, sweep()) })
			}
			sweeps()
			if links := p.B.Run(t, "ip", "-o", "link"); !strings.Contains(links, "ufd-cap0") {
				t.Fatalf("swept away what is in use: %s", links)
			}
			_ = child.Process.Kill()
			_ = child.Wait()
			if said == "links" { // which ended with the process
				if got := p.B.Run(t, "tc", "filter", "show", "dev", p.B.Ifname, "ingress"); strings.Contains(got, "ufd_mirror") {
					t.Errorf("a program is left: %s", got)
				}
			}
			sweeps()
			nothingLeft(t, p)
		})
	}
}

// awaitOutput starts a command and waits until it prints something. The end of the test kills it.
func awaitOutput(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, err := c.StdoutPipe()
	testenv.Must(t, err)
	c.Stderr = os.Stderr
	testenv.Must(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	said := make([]byte, 64)
	n, err := out.Read(said)
	testenv.Must(t, err)
	return string(said[:n])
}
