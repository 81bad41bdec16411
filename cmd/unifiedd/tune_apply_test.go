package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/card"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/tune"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// twoQueues returns a veth pair whose end B has two queues and can do with one: its driver takes an XDP program only
// with as many as the other end sends on.
func twoQueues(t *testing.T) *testenv.Pair {
	t.Helper()
	p := testenv.NewPair(t, testenv.PairOptions{Queues: 2})
	p.A.Run(t, testenv.Tool(t, "ethtool"), "-L", p.A.Ifname, "tx", "1")
	return p
}

// settingsOf returns the present settings of an end's card.
func settingsOf(t *testing.T, e *testenv.End) (all card.Settings) {
	t.Helper()
	e.Do(t, func() {
		c, err := card.Find(e.Ifname)
		if err == nil {
			all, _, err = c.Probe()
		}
		testenv.Must(t, err)
	})
	return all
}

// TestTuneApply: tune --apply tries the settings that the interface's driver has, names those that it has not, and
// leaves the card as it says. Its commands undo that.
func TestTuneApply(t *testing.T) {
	testenv.Root(t)
	testenv.Long(t, "it measures")
	testenv.HugePages(t, 160<<20)
	p := twoQueues(t)
	traffic(t, p)
	before := settingsOf(t, &p.B)
	applied(t, &p.B, before, 3, forTime("20s"))
}

// applied runs tune --apply on an end, and checks what must hold whatever is measured.
func applied(t *testing.T, e *testenv.End, before card.Settings, absent int, span string, only ...card.Setting) {
	t.Helper()
	args := []string{"tune", e.Ifname, "--apply", "--filter", "udp and dst port 5000", "--duration", span, "--json"}
	for _, which := range only {
		args = append(args, "--only", string(which))
	}
	c, said := e.Command(program(t), args...), &bytes.Buffer{}
	c.Stderr = said
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	r := tuned(t, out, err, 1)
	if len(only) == 0 {
		only = card.Order()
	}
	if r.Card == nil || len(r.Card.Settings) != len(before) || len(r.Card.Absent) != absent {
		t.Fatalf("of the card: %+v", r.Card)
	}
	for _, a := range r.Card.Absent {
		t.Logf("%s: %s", a.Setting, a.Why)
		if !strings.Contains(said.String(), string(a.Setting)+" of "+e.Ifname+" is left alone: ") {
			t.Errorf("%s is not named:\n%s", a.Setting, said)
		}
	}
	after := card.Settings{}
	for _, one := range r.Card.Settings {
		after[one.Setting] = one.After
		tried := slices.ContainsFunc(r.Trials, func(t tune.Trial) bool { return t.Setting == string(one.Setting) })
		if one.Before != before[one.Setting] || (one.Before != one.After) != (len(one.Set) > 0) || len(one.Set) != len(one.Undo) || tried != slices.Contains(only, one.Setting) {
			t.Errorf("%+v; before it was %v, tried: %v", one, before, tried)
		}
		if !strings.Contains(said.String(), string(one.Setting)+" of "+e.Ifname+" is "+one.Before) {
			t.Errorf("%s is not announced:\n%s", one.Setting, said)
		}
	}
	if now := settingsOf(t, e); !maps.Equal(now, after) {
		t.Errorf("the card has %v, not %v", now, after)
	}
	for _, one := range r.Card.Settings {
		for _, command := range one.Undo {
			e.Run(t, "sh", "-c", command)
		}
	}
	if now := settingsOf(t, e); !maps.Equal(now, before) {
		t.Errorf("undone the card has %v, not %v", now, before)
	}
}

// TestTuneApplyEnds: a card has its settings from before after tune --apply was interrupted, or killed, while one of
// them was another.
func TestTuneApplyEnds(t *testing.T) {
	testenv.Root(t)
	testenv.Long(t, "it measures")
	testenv.HugePages(t, 160<<20)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			p := twoQueues(t)
			traffic(t, p)
			endApplying(t, &p.B, signal, "6s", card.Channels)
		})
	}
}

// endApplying sends a signal to tune --apply as soon as a setting of the card differs.
func endApplying(t *testing.T, e *testenv.End, signal os.Signal, span string, only card.Setting) {
	t.Helper()
	before, said := settingsOf(t, e), &bytes.Buffer{}
	var c *exec.Cmd
	e.Do(t, func() { // not with nsenter, which would be killed instead
		c = exec.Command(program(t), "tune", e.Ifname, "--apply", "--duration", span, "--only", string(only))
		c.Stderr = said
		testenv.Must(t, c.Start())
	})
	t.Cleanup(func() { _ = c.Process.Kill() }) // it has usually ended
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	var changed card.Settings
	for changed == nil {
		if now := settingsOf(t, e); !maps.Equal(now, before) {
			changed = now
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended before it changed %v: %v\n%s", before, err, said)
		case <-time.After(20 * time.Millisecond):
		}
	}
	testenv.Checkf(t, c.Process.Signal(signal), "send %v", signal)
	err := <-ended
	t.Logf("changed to %v; it ended with %v", changed, err)
	if changed == nil || err == nil {
		t.Fatalf("from %v to %v: %v\n%s", before, changed, err, said)
	}
	testenv.Wait(t, 15*time.Second, "the settings from before", func() bool { return maps.Equal(settingsOf(t, e), before) })
	if signal != syscall.SIGKILL && !strings.Contains(said.String(), "interrupted") {
		t.Errorf("it says %s", said)
	}
}

// TestTuneApplyRefused: --apply needs an interface, and the right to change it. Packets of one that the host depends on are not
// taken.
func TestTuneApplyRefused(t *testing.T) {
	testenv.Root(t)
	if said, status := runSays("tune", "--apply", t.TempDir()+"/feed"); status != exitFailed || !strings.Contains(said, "--apply changes the card of an interface") {
		t.Errorf("of a file: status %d, %s", status, said)
	}
	if said, status := runSays("tune", "--apply", "no-such-card"); status != exitFailed || !strings.Contains(said, "no such interface") {
		t.Errorf("of no interface: status %d, %s", status, said)
	}
	if said, status := runSays("tune", "lo"); status != exitFailed || !strings.Contains(said, "--anyway") {
		t.Errorf("of lo: status %d, %s", status, said)
	}
	p := twoQueues(t)
	p.B.Run(t, "ip", "address", "add", "10.99.0.2/24", "dev", p.B.Ifname)
	p.B.Run(t, "ip", "route", "add", "default", "via", "10.99.0.1")
	if out, err := p.B.Command(program(t), "tune", p.B.Ifname, "--filter", "tcp").CombinedOutput(); err == nil || !strings.Contains(string(out), "carries the default route") {
		t.Errorf("of the default route: %v, %s", err, out)
	}
	p.B.Run(t, "ip", "route", "del", "default")
	out, err := p.B.Command("setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin", program(t), "tune", "--apply", p.B.Ifname).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "CAP_NET_ADMIN") {
		t.Errorf("without rights: %v, %s", err, out)
	}
	// A guard that is told nothing that it understands changes nothing, and says so.
	c := p.B.Command(program(t), "tune", "--guard", p.B.Ifname)
	c.Stdin = strings.NewReader("{\n")
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "read the settings of "+p.B.Ifname) {
		t.Errorf("a guard that is told nonsense: %v, %s", err, out)
	}
	text, err := json.Marshal(card.Settings{card.Channels: "rx 1"})
	testenv.Must(t, err)
	c = p.B.Command(program(t), "tune", "--guard", p.B.Ifname)
	c.Stdin = bytes.NewReader(append(text, "\nend\n"...))
	if out, err := c.CombinedOutput(); err != nil || settingsOf(t, &p.B)[card.Channels] != "rx 2" {
		t.Errorf("a guard that has nothing to do: %v, %s", err, out)
	}
}
