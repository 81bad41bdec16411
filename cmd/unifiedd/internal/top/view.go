package top

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/page"
	"github.com/unifiedd/unifiedd/flows/status"
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
	body, keys := m.flows, "q quit  ↑↓ select  enter detail  f findings  r rate  l loss  t latency  n name"
	switch {
	case m.detail:
		body, keys = m.details, "q quit  ↑↓ scroll  esc all flows  f findings  space pause"
	case m.all:
		body, keys = m.findings, "q quit  ↑↓ scroll  esc all flows  space pause"
	}
	lines := append(m.head(), body()...)
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
	return []string{
		fmt.Sprintf("%s%s%s  unifiedd %s, up %v  %d of %d flows run  by %s%s", bold, clean(d.Host), reset, clean(d.Version), (time.Duration(d.Up) * time.Second).String(), run, len(d.Flows), m.sort, state),
		"region " + status.Bytes(d.Region.Bytes) + " on " + clean(d.Region.Pages) + ": " + owners(&d.Region),
		worst(d.Findings),
		"",
	}
}

// owners returns the frames of a region by owner.
func owners(r *page.Region) string {
	parts := []string{status.Grouped(uint64(r.Frames)) + " frames"}
	for _, o := range r.Owners {
		if o.Count > 0 {
			parts = append(parts, clean(o.Name)+" "+status.Grouped(o.Count))
		}
	}
	return strings.Join(parts, ", ")
}

// worst returns how many findings there are, and the first, which matters most.
func worst(all []status.Problem) string {
	if len(all) == 0 {
		return "no findings"
	}
	more := ""
	if len(all) > 1 {
		more = fmt.Sprintf("%d findings (f), the worst: ", len(all))
	}
	return more + colored(all[0].Severity, string(all[0].Severity)+": "+clean(all[0].String()))
}

// colored returns a text in the color of its severity.
func colored(s status.Severity, text string) string {
	if s == status.Error {
		return red + text + reset
	}
	return text
}

// findings returns all findings, each with its remedy below.
func (m *Model) findings() (lines []string) {
	if m.now == nil {
		return nil
	}
	for _, f := range m.now.Findings {
		remedy := f.Remedy
		f.Remedy = ""
		for i, line := range strings.Split(ansi.Wordwrap(string(f.Severity)+": "+clean(f.String()), max(10, m.width-3), ""), "\n") {
			if i > 0 {
				line = "  " + line
			}
			lines = append(lines, colored(f.Severity, line))
		}
		if remedy != "" {
			for line := range strings.SplitSeq(ansi.Wordwrap(clean(remedy), max(10, m.width-5), ""), "\n") {
				lines = append(lines, "    "+line)
			}
		}
	}
	if lines == nil {
		lines = []string{"nothing is wrong"}
	}
	m.top = min(m.top, max(0, len(lines)-m.lines()))
	return lines[m.top:]
}

// column is a column of the list of flows, right-aligned but for the first two.
type column struct {
	head  string
	width int
	text  func(*row) string
}

// columns are those of the list without FROM → TO.
var columns = []column{
	{"STATE", 7, func(r *row) string { return clipped(r.State, 7) }},
	{"RATE/s", 7, func(r *row) string { return count(r.Rate) }},
	{"BITS/s", 7, func(r *row) string { return count(r.Bits) }},
	{"LOST/s", 7, func(r *row) string { return count(r.losing) }},
	{"LOST", 7, func(r *row) string { return count(float64(r.lost)) }},
	{"P50", 7, func(r *row) string { return nanoseconds(r.p50) }},
	{"P99", 7, func(r *row) string { return nanoseconds(r.p99) }},
}

// dropped are the columns that a narrow screen has no room for, the first one first.
var dropped = []string{"BITS/s", "LOST"}

// fitting returns the columns for which there is room beside the names, which are name wide, and the paths.
func fitting(screen, name, path int) []column {
	used, all := name, slices.Clone(columns)
	for _, c := range all {
		used += 1 + c.width
	}
	for _, drop := range dropped {
		if used+2+path <= screen {
			break
		}
		i := slices.IndexFunc(all, func(c column) bool { return c.head == drop })
		used -= 1 + all[i].width
		all = slices.Delete(all, i, i+1)
	}
	return all
}

func path(f *page.Flow) string { return clean(f.From) + " → " + clean(f.To) }

// flows returns a line for each flow that fits, with the selected one among them.
func (m *Model) flows() []string {
	if m.now == nil {
		return nil
	}
	name, longest := len("FLOW"), len("FROM → TO")
	for i := range m.rows {
		name = max(name, min(20, ansi.StringWidth(clean(m.rows[i].Name))))
		longest = max(longest, min(26, ansi.StringWidth(path(m.rows[i].Flow))))
	}
	shown := fitting(m.width, name, longest)
	line := func(first string, text func(column) string, last string) string {
		s := padded(clipped(first, name), -name)
		for _, c := range shown {
			width := c.width
			if c.head == "STATE" {
				width = -width
			}
			s += " " + padded(text(c), width)
		}
		return s + "  " + last
	}
	lines := []string{bold + line("FLOW", func(c column) string { return c.head }, "FROM → TO") + reset}
	room := m.lines()
	at := max(0, m.find())
	m.top = min(max(0, min(m.top, len(m.rows)-room)), at)
	if at >= m.top+room {
		m.top = at - room + 1
	}
	for i := m.top; i < min(m.top+room, len(m.rows)); i++ {
		r := &m.rows[i]
		text := line(r.Name, func(c column) string { return c.text(r) }, path(r.Flow))
		switch {
		case r.Name == m.selected:
			text = reverse + text + reset
		case !r.Up || r.State != "running" || r.losing > 0:
			text = red + text + reset
		}
		lines = append(lines, text)
	}
	return lines
}

// padded returns a text as wide as a column; negative: aligned at the left.
func padded(s string, width int) string {
	space := strings.Repeat(" ", max(0, max(width, -width)-ansi.StringWidth(s)))
	if width < 0 {
		return s + space
	}
	return space + s
}

// details returns what is known of the selected flow.
func (m *Model) details() []string {
	at := m.find()
	if at < 0 {
		return nil
	}
	r := &m.rows[at]
	lines := []string{bold + clean(r.Name) + reset + ": " + path(r.Flow)}
	add := func(what, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-16s ", what)+clean(fmt.Sprintf(format, args...)))
	}
	add("state", "%s", r.State)
	for _, f := range m.now.Findings {
		if f.Flow == r.Name {
			f.Flow = ""
			add(string(f.Severity), "%s", f)
		}
	}
	add("rate", "%s %s/s, %s", grouped(r.Rate), r.Unit, bits(r.Bits))
	add("received", "%s %s, %s", status.Grouped(r.Packets), r.Unit, status.Bytes(r.Bytes))
	add("lost", "%s a second; so far: %s", grouped(r.losing), named(r.Lost))
	add("copies per byte", "ours %s, the kernel's %s", per(r.Copied, r.Bytes), per(r.Kernel, r.Bytes))
	if r.Held != nil {
		add("holds", "%s frames of the region", status.Grouped(uint64(max(0, *r.Held))))
	}
	if r.Disk != nil {
		add("disk", "%s written, %s %s durable; errors: %s", status.Bytes(r.Disk.Written), status.Grouped(r.Disk.Durable), r.Unit, named(r.Disk.Errors))
		if r.Disk.Size > 0 {
			add("free", "%s of %s, of which %s stay free", status.Bytes(r.Disk.Free), status.Bytes(r.Disk.Size), status.Bytes(r.Disk.Reserve))
		}
	}
	if r.Group != "" {
		add("group", "%s", r.Group)
	}
	for i := range r.Peers {
		p := &r.Peers[i]
		add("peer", "%s: %s; %s acknowledged, %s waiting; lost: %s", p.Name, p.State, status.Grouped(p.Acknowledged), status.Grouped(p.Waiting), named(p.Lost))
	}
	if r.Latency != nil {
		add("latency", "since it began: median %s, 99 %% %s, 99.9 %% %s, at most %s", nanoseconds(r.Latency.P50), nanoseconds(r.Latency.P99), nanoseconds(r.Latency.P999), nanoseconds(r.Latency.Max))
	}
	lines = append(lines, histogram(r.Histogram)...)
	m.top = min(m.top, max(0, len(lines)-m.lines()))
	return lines[m.top:]
}

// barLength is the length of the longest bar, and eighths are the ends of bars.
const barLength = 40

var eighths = [...]string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// histogram returns a bar for each bin, to an eighth of a character.
func histogram(bins []page.Bin) (lines []string) {
	most := int64(0)
	for _, b := range bins {
		most = max(most, b.Count)
	}
	for _, b := range bins {
		length := 0
		if b.Count > 0 {
			length = max(1, int(math.Round(float64(b.Count)/float64(most)*barLength*8)))
		}
		lines = append(lines, fmt.Sprintf("  below %s %s %s", padded(nanoseconds(b.Below), 8), strings.Repeat("█", length/8)+eighths[length%8], status.Grouped(uint64(max(0, b.Count)))))
	}
	return lines
}

func named(parts []page.Part) string {
	if len(parts) == 0 {
		return "none"
	}
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		texts = append(texts, p.Name+" "+status.Grouped(p.Count))
	}
	return strings.Join(texts, ", ")
}

func per(a, b uint64) string {
	if b == 0 {
		return "0.00"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

// Beside a unit numbers have a space and its prefix; in the list the head has the unit.
func count(n float64) string { return scaled(n, "", "k", "M", "G", "T") }
func bits(n float64) string {
	return scaled(n, " bit/s", " kbit/s", " Mbit/s", " Gbit/s", " Tbit/s")
}
func grouped(n float64) string { return status.Grouped(uint64(math.Round(n))) }

func nanoseconds(n int64) string {
	if n == 0 {
		return "-"
	}
	return scaled(float64(n), " ns", " µs", " ms", " s")
}

// scaled returns a number with three digits and the unit that fits.
func scaled(n float64, units ...string) string {
	i := 0
	for ; n >= 999.5 && i < len(units)-1; i++ {
		n /= 1000
	}
	if i == 0 || n >= 999.5 {
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
