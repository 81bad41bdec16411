package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/page"
	"github.com/unifiedd/unifiedd/flows/status"
)

// Document is a new document of the daemon.
type Document struct{ *page.Document }

// Broken says that no documents come: the daemon has ended, or does not answer.
type Broken struct{ Err error }

// order is by what flows are sorted.
type order int

const (
	byRate order = iota
	byLoss
	byLatency
	byName
	orders
)

func (o order) String() string { return [orders]string{"rate", "loss", "latency", "name"}[o] }

// Model is what is on the screen. It implements tea.Model.
type Model struct {
	now, before   *page.Document // the last two; nil: none yet
	rows          []row          // flows, sorted
	sort          order
	selected      string // name of a flow
	detail        bool   // only that flow is shown
	all           bool   // only the findings are shown
	top           int    // the first line of flows, of the detail or of the findings, that is shown
	paused        bool
	broken        error
	width, height int
}

// New returns the model of a screen that has no document yet.
func New() *Model { return &Model{width: 80, height: 24} }

// Init implements tea.Model.
func (m *Model) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case Document:
		m.broken = nil
		if !m.paused {
			m.show(msg.Document)
		}
	case Broken:
		m.broken = msg.Err
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

// key does what a key asks for.
func (m *Model) key(name string) tea.Cmd {
	switch name {
	case "q", "ctrl+c":
		return tea.Quit
	case "r", "l", "t", "n":
		m.sort = order(strings.Index("rltn", name))
		m.arrange()
	case "tab":
		m.sort = (m.sort + 1) % orders
		m.arrange()
	case "space", "p":
		m.paused = !m.paused
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-m.lines())
	case "pgdown":
		m.move(m.lines())
	case "home":
		m.move(-len(m.rows) - m.top)
	case "end":
		m.move(len(m.rows))
	case "enter", "right":
		m.detail, m.all, m.top = m.find() >= 0, false, 0
	case "f":
		m.detail, m.all, m.top = false, !m.all, 0
	case "esc", "left", "backspace":
		m.detail, m.all, m.top = false, false, 0
	}
	return nil
}

// move moves the selection, or what is shown of a flow's detail or of the findings.
func (m *Model) move(by int) {
	if m.detail || m.all {
		m.top = max(0, m.top+by)
		return
	}
	if len(m.rows) > 0 {
		m.selected = m.rows[min(max(0, m.find()+by), len(m.rows)-1)].Name
	}
}

// find returns the place of the selected flow, or -1.
func (m *Model) find() int {
	return slices.IndexFunc(m.rows, func(r row) bool { return r.Name == m.selected })
}

// show makes a document the newest.
func (m *Model) show(d *page.Document) {
	m.before, m.now = m.now, d
	m.rows = make([]row, 0, len(d.Flows))
	old := make(map[string]*page.Flow)
	span := time.Duration(0)
	if m.before != nil {
		span = d.Time.Sub(m.before.Time)
		for i := range m.before.Flows {
			old[m.before.Flows[i].Name] = &m.before.Flows[i]
		}
	}
	for i := range d.Flows {
		m.rows = append(m.rows, newRow(&d.Flows[i], old[d.Flows[i].Name], span))
	}
	m.arrange()
	if m.find() < 0 {
		m.detail = false
		if len(m.rows) > 0 {
			m.selected = m.rows[0].Name
		}
	}
}

// arrange sorts the flows: what needs attention first, and flows of the same rank by their names.
func (m *Model) arrange() {
	slices.SortStableFunc(m.rows, func(a, b row) int {
		first := 0
		switch m.sort {
		case byRate:
			first = cmp.Compare(b.Rate, a.Rate)
		case byLoss:
			first = cmp.Or(cmp.Compare(b.losing, a.losing), cmp.Compare(b.lost, a.lost))
		case byLatency:
			first = cmp.Compare(b.p99, a.p99)
		}
		return cmp.Or(first, cmp.Compare(a.Name, b.Name))
	})
}

// row is a flow with what is between the last two documents.
type row struct {
	*page.Flow
	lost     uint64  // packets or messages, for all reasons, since the flow began
	losing   float64 // a second
	p50, p99 int64   // nanoseconds, of what came between the documents; 0: unknown
}

func newRow(f, before *page.Flow, span time.Duration) row {
	r := row{Flow: f, lost: losses(f)}
	bins := f.Histogram
	if before != nil && span > 0 && before.Packets <= f.Packets { // else the flow began anew
		r.losing = float64(r.lost-min(r.lost, losses(before))) / span.Seconds()
		bins = since(f.Histogram, before.Histogram)
	}
	r.p50, r.p99 = quantile(bins, 0.5), quantile(bins, 0.99)
	if r.p99 == 0 && len(f.Histogram) == 0 && f.Latency != nil {
		r.p50, r.p99 = f.Latency.P50, f.Latency.P99
	}
	return r
}

// losses returns how much a flow has lost, with what its peers did not get.
func losses(f *page.Flow) (n uint64) {
	for _, p := range f.Lost {
		if !status.OnPurpose(p.Name) {
			n += p.Count
		}
	}
	for i := range f.Peers {
		for _, p := range f.Peers[i].Lost {
			n += p.Count
		}
	}
	return n
}

// since returns what a histogram has in addition to an earlier one.
func since(now, before []page.Bin) []page.Bin {
	old := make(map[int64]int64, len(before))
	for _, b := range before {
		old[b.Below] = b.Count
	}
	all := make([]page.Bin, len(now))
	for i, b := range now {
		all[i] = page.Bin{Below: b.Below, Count: max(0, b.Count-old[b.Below])}
	}
	return all
}

// quantile returns the time that a part of what a histogram counts stays below, or 0 if it counts nothing.
func quantile(bins []page.Bin, part float64) int64 {
	total := int64(0)
	for _, b := range bins {
		total += b.Count
	}
	seen := int64(0)
	for _, b := range bins {
		if seen += b.Count; seen > 0 && float64(seen) >= part*float64(total) {
			return b.Below
		}
	}
	return 0
}
