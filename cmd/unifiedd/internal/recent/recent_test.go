package recent

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
)

// TestMessages: warnings and errors are counted by message and flow; what is less, and attributes, are not kept.
func TestMessages(t *testing.T) {
	h := New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelInfo}))
	log := slog.New(h)
	log.Info("started")
	log.Warn("slow", "flow", "a", "path", "/secret")
	log.With("flow", "b").Warn("slow")
	log.Warn("slow", "flow", "a", "path", "/other")
	log.WithGroup("g").Error("broken", "flow", "c")
	all := h.Messages()
	var got []string
	for _, m := range all {
		got = append(got, fmt.Sprint(m.Level, " ", m.Text, " ", m.Flow, " ", m.Count))
		if m.First.IsZero() || m.Last.Before(m.First) {
			t.Errorf("times of %+v", m)
		}
	}
	if want := "[ERROR broken  1 WARN slow a 2 WARN slow b 1]"; fmt.Sprint(got) != want {
		t.Errorf("messages are %v, want %v", got, want)
	}
	if (*Handler)(nil).Messages() != nil {
		t.Error("no handler has messages")
	}
}

// TestMost: only so many messages are remembered, and the newest are.
func TestMost(t *testing.T) {
	h := New(slog.DiscardHandler)
	for i := range 3 * most {
		h.shared.add(slog.Record{Message: fmt.Sprint(i), Level: slog.LevelError}, "")
	}
	if all := h.Messages(); len(all) != most || all[0].Text != fmt.Sprint(3*most-1) {
		t.Errorf("%d messages, the newest %q", len(all), all[0].Text)
	}
}
