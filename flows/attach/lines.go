package attach

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// paced returns a logger that passes on a number of lines at once and then one a second, since whoever may connect causes
// lines. The next line that it passes on says how many it has left out.
func paced(log *slog.Logger) *slog.Logger {
	return slog.New(pacedHandler{log.Handler(), &pace{left: linesAtOnce}})
}

const (
	linesAtOnce = 64
	linePeriod  = time.Second
)

// pace counts lines.
type pace struct {
	mu      sync.Mutex
	left    int       // lines that may follow at once
	since   time.Time // up to when the lines that a period brings are in left
	omitted uint64    // since the last line that was passed on
}

// take reports whether a line may be passed on, and how many before it were not.
func (p *pace) take(now time.Time) (omitted uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := int(now.Sub(p.since) / linePeriod); n > 0 {
		p.left, p.since = min(p.left+n, linesAtOnce), now
	}
	if p.left == 0 {
		p.omitted++
		return 0, false
	}
	p.left--
	omitted, p.omitted = p.omitted, 0
	return omitted, true
}

type pacedHandler struct {
	slog.Handler
	pace *pace
}

// Handle implements [slog.Handler].
func (h pacedHandler) Handle(ctx context.Context, r slog.Record) error {
	omitted, ok := h.pace.take(r.Time)
	if !ok {
		return nil
	}
	if omitted > 0 {
		r.AddAttrs(slog.Uint64("lines_omitted", omitted))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h pacedHandler) WithAttrs(all []slog.Attr) slog.Handler {
	return pacedHandler{h.Handler.WithAttrs(all), h.pace}
}

// WithGroup implements [slog.Handler].
func (h pacedHandler) WithGroup(name string) slog.Handler {
	return pacedHandler{h.Handler.WithGroup(name), h.pace}
}
