package afxdp

import (
	"errors"
	"strings"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/xdp"
)

// interfaces are the interfaces that a flow receives from, at least one.
type interfaces []*xdp.Interface

// each calls do for every interface, even after an error.
func (all interfaces) each(do func(*xdp.Interface) error) error {
	var errs []error
	for _, i := range all {
		errs = append(errs, do(i))
	}
	return errors.Join(errs...)
}

// Name returns the interfaces' names.
func (all interfaces) Name() string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name()
	}
	return strings.Join(names, ", ")
}

// Node returns the NUMA node of the first interface.
func (all interfaces) Node() int { return all[0].Node() }

// Start makes every interface deliver packets. After an error none does.
func (all interfaces) Start() error {
	for n, i := range all {
		if err := i.Start(); err != nil {
			return errors.Join(err, all[:n].Stop())
		}
	}
	return nil
}

// Stop makes packets pass to the kernel again.
func (all interfaces) Stop() error {
	return all.each(func(i *xdp.Interface) error { return i.Stop() })
}

// Check returns an error of an interface. It prefers an error that ends the flow to one that the
// flow waits out.
func (all interfaces) Check() (waits error) {
	for _, i := range all {
		err := i.Check()
		if err != nil && !errors.Is(err, xdp.ErrInterfaceDown) {
			return err
		}
		if waits == nil {
			waits = err
		}
	}
	return waits
}

// SetFilter sets the filter of every interface. If one refuses it, all keep the old filter, before.
func (all interfaces) SetFilter(from, before config.From) error {
	wanted, err := selection(from, all[0].Link())
	if err != nil {
		return err
	}
	for n, i := range all {
		if err := i.Select(wanted); err != nil {
			if n == 0 {
				return err
			}
			return errors.Join(err, all[:n].SetFilter(before, before))
		}
	}
	return nil
}

// Granted returns what the kernel granted to all interfaces.
func (all interfaces) Granted() xdp.Granted {
	g := all[0].Granted()
	for _, i := range all[1:] {
		if one := i.Granted(); g.ZeroCopy && !one.ZeroCopy {
			one.CardClock = g.CardClock && one.CardClock
			g = one
		}
	}
	return g
}

// Unbound returns the queues whose packets stay with the kernel.
func (all interfaces) Unbound() (left []uint32) {
	for _, i := range all {
		left = append(left, i.Unbound()...)
	}
	return left
}

// observeLedger adds the ledger to a status: the sum over all interfaces, and the counters of each.
func (all interfaces) observeLedger(s *status.Flow) error {
	for _, i := range all {
		l, err := i.Ledger()
		if err != nil {
			return err
		}
		s.Offered += l.Offered
		s.Waiting += l.Of(xdp.Waiting)
		s.Missing += l.Missing()
		one := status.Interface{Name: i.Name(), ZeroCopy: i.Granted().ZeroCopy, Offered: l.Offered, Received: l.Of(xdp.Received), Dropped: map[string]uint64{}}
		for _, reason := range xdp.Reasons() {
			switch n := l.Of(reason); {
			case reason.IsLost(), reason == xdp.FilterDropped:
				s.Dropped[reason.String()] += n
				one.Dropped[reason.String()] = n
			case reason != xdp.Received && reason != xdp.Waiting:
				s.Passed[reason.String()] += n
			}
		}
		if len(all) > 1 {
			s.Interfaces = append(s.Interfaces, one)
		}
	}
	return nil
}

// Selected returns the sum of the counters of all interfaces' filters.
func (all interfaces) Selected() (sum xdp.Selected, err error) {
	for _, i := range all {
		one, err := i.Selected()
		if err != nil {
			return sum, err
		}
		if len(sum.Rules) != len(one.Rules) || len(sum.Own) != len(one.Own) { // the first interface, or one that lost its program
			sum = one
			continue
		}
		for n, r := range one.Rules {
			sum.Rules[n].Packets += r.Packets
			sum.Rules[n].Bytes += r.Bytes
		}
		for n, c := range one.Own {
			sum.Own[n].Value += c.Value
		}
	}
	return sum, nil
}
