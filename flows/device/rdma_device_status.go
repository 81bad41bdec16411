package device

import (
	"maps"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/rdma/roce"
)

// status is that of the devices that are open, by name.
func (d *RDMADevices) Status() (all []status.RDMADevice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(d.byName)) {
		one := d.byName[name]
		s := status.RDMADevice{Name: name, Flows: one.users, QueuePairs: one.Device.QueuePairs()}
		if soft, is := one.Device.(*roce.Device); is {
			CountCopies(&s, soft.Counters())
		}
		all = append(all, s)
	}
	return all
}

// countCopies fills in the bytes that RoCE in software copied.
func CountCopies(s *status.RDMADevice, counters []roce.Counter) {
	s.SentCopied = map[string]uint64{}
	for _, c := range counters {
		if reason, is := strings.CutPrefix(c.Name, "sent_copied_bytes_"); is {
			s.SentCopied[reason] = c.Value
		} else if c.Name == "copied_bytes" {
			s.Placed = c.Value
		}
	}
}
