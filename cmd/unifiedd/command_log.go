package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// commandLog is the log of a command that a person reads: warnings and errors, each in a line of plain text. On a terminal
// it removes the line with the progress before, which the next progress prints again.
type commandLog struct {
	mu    *sync.Mutex
	w     io.Writer
	clear string
	attrs []slog.Attr
}

// newCommandLog returns the log of a command on its standard error.
func newCommandLog(w io.Writer) *slog.Logger {
	h := &commandLog{mu: new(sync.Mutex), w: w}
	if isTerminal(w) {
		h.clear = "\r\x1b[K"
	}
	return slog.New(h)
}

func (h *commandLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (h *commandLog) Handle(_ context.Context, r slog.Record) error {
	word := "warning"
	if r.Level >= slog.LevelError {
		word = "error"
	}
	var with []string
	why := ""
	add := func(a slog.Attr) bool {
		if a.Key == "err" {
			why = ": " + a.Value.String()
		} else if text := a.Value.String(); text != "" {
			with = append(with, a.Key+" "+text)
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	line := fmt.Sprintf("%sunifiedd: %s: %s%s", h.clear, word, r.Message, why)
	if with != nil {
		line += " (" + strings.Join(with, ", ") + ")"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, line+"\n")
	return err
}

func (h *commandLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := *h
	more.attrs = append(append([]slog.Attr(nil), h.attrs...), attrs...)
	return &more
}

// WithGroup implements slog.Handler. Nothing here groups attributes.
func (h *commandLog) WithGroup(string) slog.Handler { return h }
