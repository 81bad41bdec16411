package top

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/page"
	"github.com/unifiedd/unifiedd/flows/status"
)

// document returns a document of three flows, n seconds after the first.
func document(n int) *page.Document {
	held := int64(7)
	seconds := uint64(n)
	return &page.Document{
		Host: "alpha", Version: "1.2.3", Time: time.Unix(1700000000+int64(n), 0), Up: 90, Region: page.Region{Bytes: 64 << 20, Pages: "2 MiB huge pages", Frames: 100, Owners: []page.Part{{Name: "pool", Count: 60}, {Name: "xdp", Count: 40}, {Name: "rdma"}}},
		Flows: []page.Flow{
			{Name: "slow", State: "running", Up: true, From: "interface eth1", To: "disk", Unit: "packets", Rate: 10, Bits: 8000, Packets: 10 * seconds, Bytes: 1000 * seconds, Copied: 500 * seconds, Held: &held,
				Lost:      []page.Part{{Name: "filter_dropped", Count: 100 * seconds}, {Name: "lost_ring_full", Count: 5 * seconds}},
				Disk:      &page.Disk{Written: 4096, Durable: 9, Free: 512 << 10, Size: 1 << 20, Reserve: 64 << 10, Errors: []page.Part{{Name: "EIO", Count: 2}}},
				Latency:   &page.Latency{P50: 1000, P99: 2000, P999: 3000, Max: 4000},
				Histogram: []page.Bin{{Below: 1024, Count: 90}, {Below: 2048, Count: 10 * int64(n)}, {Below: 1 << 20, Count: int64(n) / 2}}},
			{Name: "fast", State: "running", Up: true, From: "RDMA", To: "RDMA", Unit: "messages", Rate: 2.5e6, Bits: 1e10, Packets: 1,
				Peers: []page.Peer{{Name: "east\x1b[2J", State: "connected", Acknowledged: 3, Waiting: 4, Lost: []page.Part{{Name: "drop_oldest", Count: 8 * seconds}}}}},
			{Name: "away", State: "waiting", Up: true, From: "interface eth9", To: "discarded", Unit: "packets"},
		},
		Findings: []status.Problem{{Severity: status.Error, Flow: "away", Text: "waits: interface eth9 is not there", Remedy: "bring it back"}, {Severity: status.Info, Text: "no zero copy"}},
	}
}

// screen returns what a model shows, without styles.
func screen(m *Model) string { return ansi.Strip(m.View().Content) }

// press sends a key.
func press(m *Model, keys ...tea.Key) (quits bool) {
	for _, k := range keys {
		_, cmd := m.Update(tea.KeyPressMsg(k))
		quits = cmd != nil
	}
	return quits
}

func letter(r rune) tea.Key { return tea.Key{Code: r, Text: string(r)} }

// names returns the flows in the order in which they are shown.
func names(m *Model) string {
	var all []string
	for line := range strings.Lines(screen(m)) {
		if f := strings.Fields(line); len(f) > 8 && (f[0] == "slow" || f[0] == "fast" || f[0] == "away") {
			all = append(all, f[0])
		}
	}
	return strings.Join(all, " ")
}

func shown(n ...int) *Model {
	m := New()
	m.Update(tea.WindowSizeMsg{Width: 140, Height: 40})
	for _, at := range n {
		m.Update(Document{document(at)})
	}
	return m
}

// TestFlows: the flows have the rates between two documents, and are sorted by what the user asks for.
func TestFlows(t *testing.T) {
	m := shown(10, 12)
	text := screen(m)
	for _, want := range []string{
		"alpha  unifiedd 1.2.3, up 1m30s  2 of 3 flows run  by rate", "region 64 MiB", "100 frames, pool 60, xdp 40", "2 findings (f), the worst: error: flow away waits: interface eth9 is not there",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for name, want := range map[string]string{"slow": "slow running 10 8k 5 60 2.05 µs 1.05 ms interface eth1 → disk", "fast": "fast running 2.5M 10G 8 96 - - RDMA → RDMA", "away": "away waiting 0 0 0 0 - - interface eth9 → discarded"} {
		found := false
		for line := range strings.Lines(text) {
			found = found || strings.Join(strings.Fields(line), " ") == want
		}
		if !found {
			t.Errorf("flow %s is not shown as %q in\n%s", name, want, text)
		}
	}
	for _, c := range []struct {
		key  rune
		want string
	}{{'r', "fast slow away"}, {'l', "fast slow away"}, {'t', "slow away fast"}, {'n', "away fast slow"}} {
		press(m, letter(c.key))
		if got := names(m); got != c.want {
			t.Errorf("sorted by %c: %s, want %s", c.key, got, c.want)
		}
	}
	for range 4 {
		press(m, tea.Key{Code: tea.KeyTab})
	}
	if got := names(m); got != "away fast slow" {
		t.Errorf("after all orders: %s", got)
	}
}

// TestDetail: enter shows the selected flow, which stays selected as the order changes; esc goes back; a flow that is
// gone is not shown.
func TestDetail(t *testing.T) {
	m := shown(10, 12)
	press(m, letter('n'), tea.Key{Code: tea.KeyEnd}, letter('r'), tea.Key{Code: tea.KeyEnter})
	text := screen(m)
	for _, want := range []string{
		"slow: interface eth1 → disk", "10 packets/s, 8 kbit/s", "5 a second; so far: filter_dropped 1,200, lost_ring_full 60", "ours 0.50, the kernel's 0.00", "7 frames of the region",
		"4 KiB written, 9 packets durable; errors: EIO 2", "512 KiB of 1 MiB, of which 64 KiB stay free", "median 1 µs, 99 % 2 µs", "below  1.02 µs", "████", "esc all flows",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	press(m, tea.Key{Code: tea.KeyEscape}, letter('r'), tea.Key{Code: tea.KeyHome}, tea.Key{Code: tea.KeyEnter})
	if text := screen(m); !strings.Contains(text, "east?[2J: connected; 3 acknowledged, 4 waiting; lost: drop_oldest 96") {
		t.Errorf("the peer is not shown:\n%s", text)
	}
	gone := document(13)
	gone.Flows = gone.Flows[:1]
	m.Update(Document{gone})
	if text := screen(m); !strings.Contains(text, "slow") || strings.Contains(text, "fast") || strings.Contains(text, "east") {
		t.Errorf("a flow that is gone is shown:\n%s", text)
	}
	gone.Flows = nil
	m.Update(Document{gone})
	press(m, tea.Key{Code: tea.KeyDown}, tea.Key{Code: tea.KeyEnter})
	if text := screen(m); !strings.Contains(text, "0 of 0 flows run") {
		t.Errorf("without flows:\n%s", text)
	}
}

// TestNarrow: at 80 columns the latencies and both ends of a flow are there, and the bits are not. With less room the sum of
// losses goes, too.
func TestNarrow(t *testing.T) {
	m := shown(10, 12)
	for _, c := range []struct {
		width       int
		shown, gone []string
	}{
		{100, []string{"BITS/s", "LOST/s", "P99", "interface eth9 → discarded"}, nil},
		{80, []string{"LOST/s", "LOST ", "P99", "1.05 ms", "interface eth9 → discarded"}, []string{"BITS/s"}},
		{78, []string{"LOST/s", "P99", "1.05 ms", "interface eth9 → discarded"}, []string{"BITS/s", "LOST "}},
	} {
		m.Update(tea.WindowSizeMsg{Width: c.width, Height: 24})
		text := screen(m)
		for _, want := range c.shown {
			if !strings.Contains(text, want) {
				t.Errorf("at %d columns there is no %q in\n%s", c.width, want, text)
			}
		}
		for _, gone := range c.gone {
			if strings.Contains(text, gone) {
				t.Errorf("at %d columns there is %q in\n%s", c.width, gone, text)
			}
		}
	}
}

// TestFindings: f shows all findings with what to do, however narrow the screen is, and f or esc goes back.
func TestFindings(t *testing.T) {
	m := shown(10, 12)
	m.Update(tea.WindowSizeMsg{Width: 30, Height: 24})
	press(m, letter('f'))
	text := screen(m)
	for _, want := range []string{"error: flow away waits:", "  interface eth9 is not there", "    bring it back", "info: no zero copy"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	press(m, tea.Key{Code: tea.KeyDown})
	m.Update(tea.WindowSizeMsg{Width: 140, Height: 24})
	if text := screen(m); m.top != 0 || !strings.Contains(text, "error: flow away") {
		t.Errorf("it scrolls away from what fits:\n%s", text)
	}
	if press(m, letter('f')); names(m) == "" {
		t.Errorf("f does not go back:\n%s", screen(m))
	}
	press(m, letter('f'))
	if press(m, tea.Key{Code: tea.KeyEscape}); names(m) == "" {
		t.Errorf("esc does not go back:\n%s", screen(m))
	}
	press(m, letter('n'), tea.Key{Code: tea.KeyHome}, tea.Key{Code: tea.KeyEnter})
	if text := screen(m); !strings.Contains(text, "error            waits: interface eth9 is not there: bring it back") {
		t.Errorf("the flow's own finding is not in its detail:\n%s", text)
	}
	none := document(13)
	none.Findings = nil
	m.Update(Document{none})
	if press(m, letter('f')); !strings.Contains(screen(m), "nothing is wrong") {
		t.Errorf("without findings:\n%s", screen(m))
	}
}

// TestBars: bars are to scale: a sixtieth of the longest is not as long as a fortieth, and 1 of many is seen.
func TestBars(t *testing.T) {
	lines := histogram([]page.Bin{{Below: 1024, Count: 6000}, {Below: 2048, Count: 3000}, {Below: 4096, Count: 100}, {Below: 8192, Count: 1}, {Below: 16384}})
	for i, want := range []string{strings.Repeat("█", 40) + " 6,000", strings.Repeat("█", 20) + " 3,000", " ▋ 100", " ▏ 1", "s  0"} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("%q, want %q at its end", lines[i], want)
		}
	}
}

// TestNewRun: a flow that began anew has lost nothing since, and not less than nothing.
func TestNewRun(t *testing.T) {
	m := shown(12)
	again := document(13)
	again.Flows[0].Packets, again.Flows[0].Lost, again.Flows[0].Histogram = 1, nil, nil
	m.Update(Document{again})
	if r := m.rows[m.find()]; m.rows[1].Name != "slow" || m.rows[1].losing != 0 || r.losing < 0 {
		t.Errorf("%+v", m.rows)
	}
}

// TestStates: a daemon that ends, pauses, and the end.
func TestStates(t *testing.T) {
	m := New()
	if text := screen(m); !strings.Contains(text, "waiting for the daemon") {
		t.Errorf("at first:\n%s", text)
	}
	m.Update(Broken{errors.New("the daemon has ended")})
	if text := screen(m); !strings.Contains(text, "the daemon has ended") {
		t.Errorf("without a daemon:\n%s", text)
	}
	m = shown(10)
	m.Update(Broken{errors.New("the daemon has ended")})
	if text := screen(m); !strings.Contains(text, "the daemon has ended") || names(m) == "" {
		t.Errorf("after its end:\n%s", text)
	}
	press(m, tea.Key{Code: tea.KeySpace, Text: " "})
	later := document(11)
	later.Flows[0].Rate = 77
	m.Update(Document{later})
	if text := screen(m); !strings.Contains(text, "paused") || strings.Contains(text, " 77 ") || strings.Contains(text, "ended") {
		t.Errorf("while paused:\n%s", text)
	}
	if !press(m, letter('q')) || !press(m, tea.Key{Code: 'c', Mod: tea.ModCtrl}) || press(m, letter('x')) {
		t.Error("q and ctrl+c end it, and x does not")
	}
}

// TestSizes: on a screen of any size no line is too wide, there are not too many, and the selected flow is among them.
func TestSizes(t *testing.T) {
	d := document(1)
	for n := range 50 {
		d.Flows = append(d.Flows, page.Flow{Name: fmt.Sprintf("flow%02d", n), State: "running", Up: true, From: strings.Repeat("from", 30), To: "→→→"})
	}
	m := New()
	m.Update(Document{d})
	for _, size := range [][2]int{{200, 60}, {80, 24}, {40, 10}, {20, 8}, {3, 2}, {1, 1}, {0, 0}} {
		m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		for _, keys := range [][]tea.Key{{{Code: tea.KeyHome}}, {{Code: tea.KeyPgDown}}, {{Code: tea.KeyEnd}}, {{Code: tea.KeyPgUp}}, {{Code: tea.KeyEnter}, {Code: tea.KeyDown}}, {{Code: tea.KeyEscape}}, {letter('f')}, {letter('f')}} {
			press(m, keys...)
			lines := strings.Split(screen(m), "\n")
			if len(lines) > max(1, size[1]) {
				t.Errorf("%v: %d lines", size, len(lines))
			}
			found := m.detail || m.all
			for _, line := range lines {
				if w := ansi.StringWidth(line); w > max(1, size[0]) {
					t.Errorf("%v: a line is %d wide: %q", size, w, line)
				}
				found = found || strings.HasPrefix(line, m.selected)
			}
			if !found && size[0] >= 20 && size[1] > headLines+1 {
				t.Errorf("%v: %s is not shown after %v:\n%s", size, m.selected, keys, strings.Join(lines, "\n"))
			}
		}
	}
}

// BenchmarkView is a document of 1000 flows and its screen, once a second.
func BenchmarkView(b *testing.B) {
	d := document(1)
	for n := range 1000 {
		d.Flows = append(d.Flows, page.Flow{Name: fmt.Sprintf("flow%04d", n), State: "running", Up: true, Rate: float64(n)})
	}
	m := New()
	for b.Loop() {
		m.Update(Document{d})
		m.View()
	}
}
