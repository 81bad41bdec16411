package flows

import (
	"maps"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/rdma/roce"
)

// RDMADeviceStatus is an RDMA device that flows have open. A device of libibverbs copies nothing; RoCE in software counts here what it does, for all flows together.
type RDMADeviceStatus struct {
	Name  string `json:"name"`
	Flows int    `json:"users"` // ends of flows
	// QueuePairs is how many are open: one for each connection, of clients and of peers.
	QueuePairs int `json:"queue_pairs"`
	// Placed is the bytes that were copied to where a receive, a WRITE or a READ says: the one copy there must be of what comes, requests and
	// acknowledgements of 64 bytes included.
	Placed uint64 `json:"placed_bytes"`
	// SentCopied is the bytes that were copied to be sent and not gathered from where they lie, by reason: short, inline, again, parts, whole, own.
	SentCopied map[string]uint64 `json:"sent_copied_bytes,omitempty"`
}

// status is that of the devices that are open, by name.
func (d *rdmaDevices) status() (all []RDMADeviceStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(d.open)) {
		one := d.open[name]
		s := RDMADeviceStatus{Name: name, Flows: one.users, QueuePairs: one.Device.QueuePairs()}
		if soft, is := one.Device.(*roce.Device); is {
			s.count(soft.Counters())
		}
		all = append(all, s)
	}
	return all
}

func (s *RDMADeviceStatus) count(counters []roce.Counter) {
	s.SentCopied = map[string]uint64{}
	for _, c := range counters {
		if reason, is := strings.CutPrefix(c.Name, "sent_copied_bytes_"); is {
			s.SentCopied[reason] = c.Value
		} else if c.Name == "copied_bytes" {
			s.Placed = c.Value
		}
	}
}
