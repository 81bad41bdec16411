package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/nvmet"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/nvme/fabrics/dhchap"
)

// namespace is a disk that the flow serves to NVMe hosts, or a removed one that is still in use.
type namespace struct {
	config.Served
	disk     *nvme.Target
	released atomic.Bool // the server no longer uses it
	removed  bool        // it is no longer in the configuration
}

// namespaces are the namespaces of a flow. Any goroutine may call the methods.
type namespaces struct {
	mu    sync.Mutex
	all   []*namespace
	names []string // of the subsystems
}

// deviceWait is how long the kernel may take to close a disk of a killed process.
const deviceWait = 5 * time.Second

// open opens the disks of namespaces that are not open, and returns one for each of the list. It
// changes nothing else; the caller calls set for that. After an error it closes the disks that it has opened.
func (v *namespaces) open(namespaces []config.Served, to *config.To) (all []*namespace, err error) {
	for _, n := range namespaces {
		one := v.find(n)
		if one == nil {
			one = &namespace{Served: n}
			if err = one.open(to); err != nil {
				return nil, errors.Join(fmt.Errorf("namespace %d of %s: %w", n.ID, n.Subsystem, err), v.closeNew(all))
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// open opens the disk. A disk has one set of reservations: whoever serves it otherwise would not obey them.
func (n *namespace) open(to *config.To) error {
	share, err := nvmet.ShareNumber(to.Reservations, n.Subsystem, uint32(n.ID))
	if err == nil {
		n.disk, err = nvme.OpenTarget(nvme.TargetConfig{Path: n.Path(), ReadOnly: n.ReadOnly, Filled: true, Force: to.Force, Share: share, Wait: deviceWait})
	}
	if errors.Is(err, nvme.ErrSharedOtherwise) {
		err = fmt.Errorf("%w: this flow, another one or another daemon serves it as another namespace, or with another file of reservations or none, and there hosts would not obey what is reserved here (give it the same subsystem, namespace number and reservations everywhere, or remove it there)", err)
	}
	return err
}

// measure takes over the sizes that the disks have now. undo takes that back.
func (v *namespaces) measure(log *slog.Logger) (undo func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := make(map[*nvme.Target]uint64)
	for _, one := range v.all {
		size, err := one.disk.Measure()
		switch {
		case err != nil:
			log.Warn("could not measure a disk, which keeps its size for hosts", "namespace", one.ID, "subsystem", one.Subsystem, "err", err)
		case size != one.disk.Size():
			log.Info("disk has another size", "path", one.Path(), "namespace", one.ID, "subsystem", one.Subsystem, "bytes", size, "before", one.disk.Size())
			before[one.disk] = one.disk.Size()
			one.disk.Resize(size)
		}
	}
	return func() {
		for disk, size := range before {
			disk.Resize(size)
		}
	}
}

// resized reports whether a disk has another size than hosts see.
func (v *namespaces) resized() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.all, func(one *namespace) bool {
		size, err := one.disk.Measure()
		return err == nil && size != one.disk.Size()
	})
}

// find returns an open namespace, or nil.
func (v *namespaces) find(n config.Served) *namespace {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, one := range v.all {
		if one.Same(n) && !one.removed {
			return one
		}
	}
	return nil
}

// set replaces the namespaces by those of a configuration, which open has returned for list. The
// others become removed ones.
func (v *namespaces) set(to *config.To, list []config.Served, all []*namespace) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, one := range all {
		one.Served = list[i]
	}
	v.names = []string{to.Subsystem}
	for i := range to.Subsystems {
		v.names = append(v.names, to.Subsystems[i].NQN)
	}
	for _, one := range v.all {
		if !slices.Contains(all, one) {
			one.removed = true
			all = append(all, one)
		}
	}
	v.all = all
}

// closeNew closes disks that open has opened, if set was not called for them.
func (v *namespaces) closeNew(all []*namespace) (err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, one := range all {
		if !slices.Contains(v.all, one) {
			err = errors.Join(err, one.disk.Close())
		}
	}
	return err
}

// closeReleased closes the disks of removed namespaces that the server no longer uses.
func (v *namespaces) closeReleased() (err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = slices.DeleteFunc(v.all, func(one *namespace) bool {
		left := one.removed && one.released.Load()
		if left {
			err = errors.Join(err, one.disk.Close())
		}
		return left
	})
	return err
}

// close closes all disks. The server must be closed.
func (v *namespaces) close() (err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, one := range v.all {
		err = errors.Join(err, one.disk.Close())
	}
	return err
}

// subsystems returns the names of the subsystems.
func (v *namespaces) subsystems() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.names
}

// size returns the size of the first disk in bytes.
func (v *namespaces) size() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.all) == 0 {
		return 0
	}
	return v.all[0].disk.Size()
}

// status returns each namespace with the server's counters.
func (v *namespaces) status(counted []nvmet.NamespaceStats) (all []status.Namespace) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, one := range v.all {
		var c nvmet.NamespaceStats // zero for a removed one
		if i := slices.IndexFunc(counted, func(c nvmet.NamespaceStats) bool { return c.Disk == one.disk }); i >= 0 {
			c = counted[i]
		}
		all = append(all, status.Namespace{Subsystem: one.Subsystem, ID: one.ID, Path: one.Path(), Size: one.disk.Size(), ReadOnly: one.ReadOnly, ANA: string(one.ANA), Reservation: c.Reservation, Leaving: one.removed,
			Commands: map[string]uint64{"read": c.Read.Commands, "write": c.Written.Commands, "flush": c.Flushes, "write_zeroes": c.Zeroes, "dataset_management": c.Discards,
				"compare": c.Compares, "refused": c.Refused, "failed": c.Failed, "inaccessible": c.Inaccessible,
				"reservation": c.Reservations, "conflict": c.Conflicts},
			Bytes: map[string]uint64{"read": c.Read.Bytes, "written": c.Written.Bytes}})
	}
	return all
}

// list returns the namespaces of a configuration.
func (s *NVMe) list(to *config.To) []config.Served {
	first := s.first
	first.ANA = to.ANA
	return append([]config.Served{{Subsystem: to.Subsystem, Namespace: first}}, to.Served()...)
}

// subsystems returns the subsystems for the server. all are the namespaces that open has returned for
// the list.
func (s *NVMe) subsystems(to *config.To, list []config.Served, all []*namespace) []nvmet.Subsystem {
	subs := []nvmet.Subsystem{{NQN: to.Subsystem, Hosts: to.Hosts, AnyHost: to.AllowAnyHost}}
	for i := range to.Subsystems {
		one := &to.Subsystems[i]
		subs = append(subs, nvmet.Subsystem{NQN: one.NQN, Hosts: one.Hosts, AnyHost: one.AllowAnyHost})
	}
	for i := range subs {
		sub := &subs[i]
		sub.Keys, sub.Group = s.keys, s.group
		for k, one := range all {
			if id := uint32(one.ID); one.Subsystem == sub.NQN {
				sub.Namespaces = append(sub.Namespaces, nvmet.Namespace{ID: id, Disk: one.disk, ReadOnly: one.ReadOnly, ANA: anaStates[list[k].ANA], UUID: namespaceUUID(sub.NQN, id),
					Released: func() { one.released.Store(true) }})
			}
		}
	}
	return subs
}

// anaStates are the states of configurations.
var anaStates = map[config.ANAState]fabrics.ANAState{config.ANAOptimized: fabrics.ANAOptimized, config.ANANonOptimized: fabrics.ANANonOptimized, config.ANAInaccessible: fabrics.ANAInaccessible}

// Resized reports whether a disk has another size than hosts see. Update tells them.
func (s *NVMe) Resized() bool { return s.namespaces.resized() }

// Update replaces the namespaces and hosts, and takes over the sizes of the disks. After an error nothing has
// changed.
func (s *NVMe) Update(to config.To) error {
	list := s.list(&to)
	undo := s.namespaces.measure(s.log)
	all, err := s.namespaces.open(list, &to)
	if err != nil {
		undo()
		return err
	}
	if _, err := s.exchange(&to, list, all); err != nil {
		undo()
		return errors.Join(err, s.namespaces.closeNew(all))
	}
	s.namespaces.set(&to, list, all)
	return s.namespaces.closeReleased()
}

// exchange makes the server use these namespaces and the hosts of to. It returns the number of
// hosts whose connection this ended.
func (s *NVMe) exchange(to *config.To, list []config.Served, all []*namespace) (ended int, err error) {
	err = s.do(func() (err error) { ended, err = s.server.Change(s.subsystems(to, list, all)); return err })
	return ended, err
}

// ReadKeys reads the key file again. changed reports whether its keys differ from those in use.
func (s *NVMe) ReadKeys(to *config.To) (keys map[string]dhchap.Keys, changed bool, err error) {
	if to.Keys == "" || s.keys == nil {
		return nil, false, nil
	}
	keys, _, err = hostKeys(to)
	return keys, err == nil && !maps.EqualFunc(keys, s.keys, dhchap.Keys.Equal), err
}

// UseKeys replaces the keys. It returns how many sessions this ended: those of hosts whose key is
// removed or changed.
func (s *NVMe) UseKeys(to *config.To, keys map[string]dhchap.Keys) (ended int, err error) {
	before := s.keys
	s.keys = keys
	list := s.list(to)
	all, err := s.namespaces.open(list, to) // all are open already
	if err == nil {
		ended, err = s.exchange(to, list, all)
	}
	if err != nil {
		s.keys = before
	}
	return ended, err
}
