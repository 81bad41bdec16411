package tune

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/pairs"
)

// Figures are what one run has shown.
type Figures struct {
	Rate float64 `json:"packets_per_second"` // written, or received
	CPU  float64 `json:"cpu_ns_per_packet"`  // processor time of the process, also in the kernel; with a card's settings, that of the machine
	Lost float64 `json:"lost_share"`         // of the packets that arrived
}

// warmUp is the part of a run before it is measured.
const warmUp = 0.25

// errNothing says that there was nothing to measure.
var errNothing = errors.New("no packet arrived: there must be traffic while this measures (send some, or name another interface or filter)")

// linkReturns is how long a run waits for the first packet of an interface: many cards have no link for some seconds
// after they are given a program or other rings.
const linkReturns = 15 * time.Second

// run measures one choice for a span.
func (s *Subject) run(ctx context.Context, c choice, span time.Duration) (f Figures, err error) {
	if err := s.Outside.arrange(ctx, c); err != nil {
		return f, err
	}
	cfg, err := s.parse(c, true)
	if err != nil {
		return f, err
	}
	d, err := flows.Open(cfg, flows.Options{Version: "tune", Log: slog.New(slog.DiscardHandler), Context: ctx})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, d.Close(), s.tidy()) }()
	if err := d.Start(); err != nil {
		return f, err
	}
	if s.Kind == Interface {
		awaitPacket(ctx, d.Flows()[0])
	}
	pause(ctx, time.Duration(warmUp*float64(span)))
	used, err := s.used()
	if err != nil {
		return f, err
	}
	before, begun := d.Status().Flows[0], time.Now()
	pause(ctx, span-time.Duration(warmUp*float64(span)))
	after, took := d.Status().Flows[0], time.Since(begun)
	usedThen, err := s.used()
	if err != nil {
		return f, err
	}
	if ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	if err := s.Outside.inPlace(c); err != nil {
		return f, err
	}
	if after.State == status.Failed {
		return f, errors.New(after.Error)
	}
	return s.judge(&before, &after, usedThen-used, took)
}

// judge makes figures of two states of a flow.
func (s *Subject) judge(before, after *status.Flow, used, took time.Duration) (f Figures, err error) {
	n := after.Packets - before.Packets
	if s.Kind != Interface {
		n = after.Written.Packets - before.Written.Packets
	}
	if n == 0 {
		return f, errNothing
	}
	f.Rate, f.CPU = float64(n)/took.Seconds(), float64(used)/float64(n)
	lost := uint64(0)
	for reason, count := range after.Dropped {
		if !slices.Contains(wanted, reason) {
			lost += count - before.Dropped[reason]
		}
	}
	f.Lost = float64(lost) / float64(lost+n)
	return f, nil
}

// wanted are reasons for which packets are not received on purpose.
var wanted = []string{"filter_dropped", "not_matched", "other_link_type", "duplicate", "beyond_count"}

// parse returns the configuration of a choice.
func (s *Subject) parse(c choice, measured bool) (*config.Config, error) {
	cfg, err := config.Parse("tune", []byte(s.text(c, measured)), config.Options{FindInterface: netdev.Find})
	if err != nil {
		return nil, fmt.Errorf("settings to measure: %w", err)
	}
	return cfg, nil
}

// awaitPacket waits until the flow has received a packet, for up to linkReturns.
func awaitPacket(ctx context.Context, f *flows.Flow) {
	for end := time.Now().Add(linkReturns); ctx.Err() == nil && time.Now().Before(end); {
		if s := f.Status(); s.Packets > 0 || s.State == status.Failed {
			return
		}
		pause(ctx, 10*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// used returns processor time so far: that of the process, or that of the machine if a card's settings are measured, as
// interrupts are part of no process.
func (s *Subject) used() (time.Duration, error) {
	if s.Outside != nil {
		return pairs.Busy()
	}
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
