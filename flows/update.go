package flows

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/member"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/source/afxdp"
)

// selective is a source that receives packets of interfaces, and whose filter can be replaced.
type selective interface {
	SetFilter(from, before config.From) error
	SetRank(rank int) error
}

// interfaceSource returns the source of a running flow that receives from interfaces, or nil.
func (f *Flow) interfaceSource() selective {
	r := f.running()
	if r == nil {
		return nil
	}
	if p, ok := r.Flow.(*pipeline.Pipeline); ok {
		if s, ok := p.Source().(selective); ok {
			return s
		}
	}
	return nil
}

// setFilter replaces the filter and the multicast groups of a running flow. Either the old or the new filter decides
// on each packet, and counters continue. After an error the old filter and the old groups stay.
func (f *Flow) setFilter(from config.From) error {
	f.starting.Lock()
	defer f.starting.Unlock()
	if sameFilter(from, f.config.From) {
		return f.setGroups(from)
	}
	source := f.interfaceSource()
	if source == nil {
		return fmt.Errorf("change the filter of flow %s: it does not run", f.config.Name)
	}
	if err := source.SetFilter(from, f.config.From); err != nil {
		return fmt.Errorf("change the filter of flow %s: %w", f.config.Name, err)
	}
	if err := f.setGroups(from); err != nil {
		return errors.Join(err, source.SetFilter(f.config.From, from))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := []any{"filter", from.Wanted(), "before", f.config.From.Wanted()}
	if _, takes := source.(*afxdp.Source); takes {
		changed = append(changed, "host_no_longer_sees", afxdp.Unseen(from))
	}
	f.log.Info("filter changed", changed...)
	f.config.From = from
	return nil
}

// setRank changes the position of a running flow in the order in which flows that share its interfaces get
// packets.
func (f *Flow) setRank(rank int) error {
	f.starting.Lock()
	defer f.starting.Unlock()
	if source := f.interfaceSource(); source != nil {
		return source.SetRank(rank)
	}
	return nil
}

func sameFilter(a, b config.From) bool {
	return a.Filter == b.Filter && a.Object == b.Object && reflect.DeepEqual(a.Rules, b.Rules) && a.LeavesQueries() == b.LeavesQueries()
}

// seated is a source that is a member of a group.
type seated interface{ Seat() *member.Seat }

// Seat returns the part of a running flow in its group.
func (f *Flow) Seat() (*member.Seat, error) {
	if f.settings().To.Replicas == nil {
		return nil, fmt.Errorf("flow %s is not a member of a group", f.config.Name)
	}
	if p, ok := f.runningKind().(*pipeline.Pipeline); ok {
		if s, ok := p.Source().(seated); ok {
			return s.Seat(), nil
		}
	}
	return nil, fmt.Errorf("flow %s does not run", f.config.Name)
}

// updateMembers replaces the members that the configuration of a running flow has.
func (f *Flow) updateMembers(to config.To) error {
	f.starting.Lock()
	defer f.starting.Unlock()
	if reflect.DeepEqual(to, f.config.To) {
		return nil
	}
	seat, err := f.Seat()
	if err == nil {
		err = seat.Update(to.Replicas)
	}
	if err != nil {
		return fmt.Errorf("change the members of flow %s: %w", f.config.Name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log.Info("members changed", "members", len(to.Replicas.Members), "before", len(f.config.To.Replicas.Members))
	f.config.To = to
	return nil
}

// updater is a flow whose namespaces and hosts can be replaced while it runs.
type updater interface {
	Update(to config.To) error
	Resized() bool // a disk has another size than hosts see, and Update would tell them
}

// resized moves the flows to NVMe hosts whose disks have another size from those that a plan keeps to those that
// continue with other namespaces.
func (d *Daemon) resized(p *config.Plan) {
	_, flows := d.running()
	for _, f := range flows {
		if i := slices.Index(p.Kept, f.Name()); i >= 0 && f.resized() {
			p.Kept = slices.Delete(p.Kept, i, i+1)
			p.Subsystems = append(p.Subsystems, f.Name())
		}
	}
}

func (f *Flow) resized() bool {
	f.starting.Lock()
	defer f.starting.Unlock()
	r, ok := f.runningKind().(updater)
	return ok && r.Resized()
}

// updateNamespaces replaces the namespaces and hosts of a running flow to NVMe hosts. The flow notifies the
// hosts, and completes their commands to a namespace that is removed.
func (f *Flow) updateNamespaces(to config.To) error {
	f.starting.Lock()
	defer f.starting.Unlock()
	r, ok := f.runningKind().(updater)
	if reflect.DeepEqual(to, f.config.To) && !(ok && r.Resized()) {
		return nil
	}
	if !ok {
		return fmt.Errorf("change the namespaces of flow %s: it does not run", f.config.Name)
	}
	if err := r.Update(to); err != nil {
		return fmt.Errorf("change the namespaces of flow %s: %w", f.config.Name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log.Info("namespaces or hosts changed", "namespaces", 1+len(to.Served()), "before", 1+len(f.config.To.Served()), "subsystems", 1+len(to.Subsystems), "hosts", to.Hosts, "any_host", to.AllowAnyHost)
	f.config.To = to
	return nil
}
