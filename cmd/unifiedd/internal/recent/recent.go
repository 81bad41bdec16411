// Package recent remembers what a daemon logged as warnings and errors: each message once, with a count and the
// first and last time. The log has them all; this is for a page that shows whether something is wrong.
//
// A message is a constant text and may be shown to anybody. Its attributes may name files, addresses and peers,
// so only that of a flow is kept.
//
// Any goroutine may use a Handler. A message takes a lock; the path of a packet logs none.
package recent

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// most is the number of messages that are remembered. The one that is longest ago makes room for a new one.
const most = 64

// Message is one text that was logged, and how often.
type Message struct {
	Level string    `json:"level"`
	Text  string    `json:"text"`
	Flow  string    `json:"flow,omitempty"` // empty: of the daemon
	Count uint64    `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// messages are what the handlers of one log share.
type messages struct {
	mu  sync.Mutex
	all []Message
}

// Handler passes everything on to another handler, and remembers warnings and errors.
type Handler struct {
	next   slog.Handler
	shared *messages
	flow   string
	group  bool // attributes now belong to a group, and flow is another one
}

// New returns a handler in front of another one.
func New(next slog.Handler) *Handler { return &Handler{next: next, shared: new(messages)} }

// Enabled implements [slog.Handler].
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// WithAttrs implements [slog.Handler].
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	n.next = h.next.WithAttrs(attrs)
	for _, a := range attrs {
		n.note(a)
	}
	return &n
}

// WithGroup implements [slog.Handler].
func (h *Handler) WithGroup(name string) slog.Handler {
	n := *h
	n.next, n.group = h.next.WithGroup(name), h.group || name != ""
	return &n
}

func (h *Handler) note(a slog.Attr) {
	if a.Key == "flow" && !h.group {
		h.flow = a.Value.String()
	}
}

// Handle implements [slog.Handler].
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		one := *h
		r.Attrs(func(a slog.Attr) bool { one.note(a); return true })
		h.shared.add(r, one.flow)
	}
	return h.next.Handle(ctx, r)
}

func (m *messages) add(r slog.Record, flow string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	level := r.Level.String()
	i := slices.IndexFunc(m.all, func(o Message) bool { return o.Level == level && o.Text == r.Message && o.Flow == flow })
	if i < 0 {
		if len(m.all) == most {
			m.all = slices.Delete(m.all, 0, 1)
		}
		m.all = append(m.all, Message{Level: level, Text: r.Message, Flow: flow, Count: 1, First: r.Time, Last: r.Time})
		return
	}
	one := m.all[i]
	one.Count++
	one.Last = r.Time
	m.all = append(slices.Delete(m.all, i, i+1), one) // the newest is at the end
}

// Messages returns the messages, the newest first. The caller may change the slice. A nil Handler has none.
func (h *Handler) Messages() []Message {
	if h == nil {
		return nil
	}
	h.shared.mu.Lock()
	defer h.shared.mu.Unlock()
	all := slices.Clone(h.shared.all)
	slices.Reverse(all)
	return all
}
