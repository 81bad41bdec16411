package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/page"
)

// Styles, as escape sequences. The terminal's program leaves out those that the terminal does not have.
const (
	bold    = "\x1b[1m"
	reverse = "\x1b[7m"
	red     = "\x1b[31m"
	reset   = "\x1b[0m"
)

// View implements tea.Model.
func (m *Model) View() tea.View {
	v := tea.NewView(strings.Join(m.screen(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "unifiedd top"
	return v
}

// screen returns the lines of the screen, none wider or more than it has.
func (m *Model) screen() []string {
	head, body := m.head(), m.flows()
	if m.detail {
		body = m.details()
	}
	lines := append(head, body...)
	keys := "q quit  ↑↓ select  enter detail  r rate  l loss  t latency  n name  space pause"
	if m.detail {
		keys = "q quit  ↑↓ scroll  esc all flows  space pause"
	}
	if room := m.height - 1; len(lines) > room {
		lines = lines[:max(0, room)]
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, keys)
	for i, line := range lines {
		if width := max(1, m.width); ansi.StringWidth(line) > width {
			lines[i] = ansi.Truncate(line, width-1, "…") + reset
		}
	}
	return lines
}

// headLines is how many lines are above the flows, at most.
const headLines = 6

// lines is how many flows fit.
func (m *Model) lines() int { return max(1, m.height-headLines-1) }

// head returns what is said of the daemon.
func (m *Model) head() []string {
	d := m.now
	if d == nil {
		lines := []string{bold + "unifiedd top" + reset, "waiting for the daemon"}
		if m.broken != nil {
			lines[1] = red + clean(m.broken.Error()) + reset
		}
		return lines
	}
	run := 0
	for i := range d.Flows {
		if d.Flows[i].State == "running" {
			run++
		}
	}
	state := ""
	switch {
	case m.broken != nil:
		state = "  " + red + clean(m.broken.Error()) + reset
	case m.paused:
		state = "  " + bold + "paused" + reset
	}
	lines := []string{
		fmt.Sprintf("%sunifiedd %s%s  up %v  %d of %d flows run  sorted by %s%s", bold, clean(d.Version), reset, (time.Duration(d.Up) * time.Second).String(), run, len(d.Flows), m.sort, state),
		"region " + scaled(float64(d.Region.Bytes), 1024, " B", " KiB", " MiB", " GiB", " TiB") + " on " + clean(d.Region.Pages) + ": " + owners(&d.Region),
		worst(d.Findings),
		"",
	}
	return lines
}

// owners returns the frames of a region by owner.
func owners(r *page.Region) string {
	parts := []string{fmt.Sprintf("%d frames", r.Frames)}
	for _, o := range r.Owners {
		if o.Count > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", clean(o.Name), o.Count))
		}
	}
	return strings.Join(parts, ", ")
}

// worst returns the finding that matters most, and how many others there are.
func worst(all []page.Finding) string {
	for _, severity := range []string{"error", "warning", "info"} {
		for _, f := range all {
			if f.Severity != severity {
				continue
			}
			text := severity + ": " + clean(f.Text)
			if len(all) > 1 {
				text += fmt.Sprintf(" (and %d more)", len(all)-1)
			}
			if severity == "error" {
				return red + text + reset
			}
			return text
		}
	}
	return "no findings"
}

// flows returns a line for each flow that fits, with the selected one among them.
func (m *Model) flows() []string {
	if m.now == nil {
		return nil
	}
	lines := []string{bold + fmt.Sprintf("%-20s %-8s %10s %12s %10s %12s %9s %9s  %s", "FLOW", "STATE", "RATE/s", "BITS/s", "LOST/s", "LOST", "P50", "P99", "FROM → TO") + reset}
	room := m.lines()
	at := max(0, m.find())
	m.top = min(max(0, min(m.top, len(m.rows)-room)), at)
	if at >= m.top+room {
		m.top = at - room + 1
	}
	for i := m.top; i < min(m.top+room, len(m.rows)); i++ {
		r := &m.rows[i]
		line := fmt.Sprintf("%-20s %-8s %10s %12s %10s %12d %9s %9s  %s → %s", clipped(r.Name, 20), clipped(r.State, 8), count(r.Rate), bits(r.Bits), count(r.losing), r.lost, nanoseconds(r.p50), nanoseconds(r.p99), clean(r.From), clean(r.To))
		switch {
		case r.Name == m.selected:
			line = reverse + line + reset
		case !r.Up || r.State != "running" || r.losing > 0:
			line = red + line + reset
		}
		lines = append(lines, line)
	}
	return lines
}

// details returns what is known of the selected flow.
func (m *Model) details() []string {
	at := m.find()
	if at < 0 {
		return nil
	}
	r := &m.rows[at]
	lines := []string{bold + clean(r.Name) + reset + ": " + clean(r.From) + " → " + clean(r.To)}
	add := func(what, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-16s ", what)+clean(fmt.Sprintf(format, args...)))
	}
	state := r.State
	if r.Why != "" {
		state += ": " + r.Why
	}
	add("state", "%s", state)
	add("rate", "%s %s/s, %s bit/s", count(r.Rate), r.Unit, bits(r.Bits))
	add("received", "%d %s, %d bytes", r.Packets, r.Unit, r.Bytes)
	add("lost", "%s a second; so far: %s", count(r.losing), named(r.Lost))
	add("copies per byte", "ours %s, the kernel's %s", per(r.Copied, r.Bytes), per(r.Kernel, r.Bytes))
	if r.Held != nil {
		add("holds", "%d frames of the region", *r.Held)
	}
	if r.Disk != nil {
		add("disk", "%d bytes written, %d %s durable; errors: %s", r.Disk.Written, r.Disk.Durable, r.Unit, named(r.Disk.Errors))
	}
	if r.Group != "" {
		add("group", "%s", r.Group)
	}
	for i := range r.Peers {
		p := &r.Peers[i]
		add("peer", "%s: %s; %d acknowledged, %d waiting; lost: %s", p.Name, p.State, p.Acknowledged, p.Waiting, named(p.Lost))
	}
	if r.Latency != nil {
		add("latency", "since it began: median %s, 99 %% %s, 99.9 %% %s, at most %s", nanoseconds(r.Latency.P50), nanoseconds(r.Latency.P99), nanoseconds(r.Latency.P999), nanoseconds(r.Latency.Max))
	}
	lines = append(lines, histogram(r.Histogram)...)
	m.top = min(m.top, max(0, len(lines)-m.lines()))
	return lines[m.top:]
}

// barLength is the length of the longest bar.
const barLength = 40

// histogram returns a bar for each bin.
func histogram(bins []page.Bin) (lines []string) {
	most := int64(0)
	for _, b := range bins {
		most = max(most, b.Count)
	}
	for _, b := range bins {
		length := 0
		if b.Count > 0 {
			length = max(1, int(float64(b.Count)/float64(most)*barLength))
		}
		lines = append(lines, fmt.Sprintf("  below %-10s %s %d", nanoseconds(b.Below), strings.Repeat("█", length), b.Count))
	}
	return lines
}

func named(parts []page.Part) string {
	if len(parts) == 0 {
		return "none"
	}
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		texts = append(texts, fmt.Sprintf("%s %d", p.Name, p.Count))
	}
	return strings.Join(texts, ", ")
}

func per(a, b uint64) string {
	if b == 0 {
		return "0.00"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

func count(n float64) string { return scaled(n, 1000, "", "k", "M", "G") }
func bits(n float64) string  { return scaled(n, 1000, "", "k", "M", "G", "T") }

func nanoseconds(n int64) string {
	if n == 0 {
		return "-"
	}
	return scaled(float64(n), 1000, "ns", "µs", "ms", "s")
}

// scaled returns a number with three digits and the unit that fits.
func scaled(n, step float64, units ...string) string {
	i := 0
	for ; n >= step && i < len(units)-1; i++ {
		n /= step
	}
	if i == 0 {
		return fmt.Sprintf("%.0f%s", n, units[i])
	}
	return fmt.Sprintf("%.3g%s", n, units[i])
}

// clipped returns a text that is at most so wide.
func clipped(s string, width int) string { return ansi.Truncate(clean(s), width, "…") }

// clean makes a text harmless for a terminal: names come from peers, too.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
