package roce

import (
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// Counter is something that a device counts, since it was opened.
type Counter struct {
	Name  string // fit for a metric
	Value uint64
}

// counter is what is counted here; the engine and the sockets count for themselves.
type counter uint8

const (
	_             counter = iota
	copiedShort           // bytes that were copied to be sent: fewer than Config.CopyBelow
	copiedInline          // those posted inline
	copiedAgain           // sent again: their memory may be used for something else meanwhile
	copiedParts           // in more parts than the card takes at once, or than there is room for
	copiedWhole           // of sockets that send only packets in one part
	copiedOwn             // to an address of our own
	notOurs               // packets to an address that is not ours
	otherVLAN             // packets to an address of ours, on another VLAN than that
	refused               // frames that could not be sent
	kickErrors            // calls that the kernel did not answer well, as of an interface that is down
	waysLost              // times that a peer was no longer reached
	tooLong               // packets of more frames than any interface's MTU has
	unsent                // packets to our own address for which there was no frame
	counterNumber         // how many there are
)

var counterNames = [counterNumber]string{copiedShort: "sent_copied_bytes_short", copiedInline: "sent_copied_bytes_inline",
	copiedAgain: "sent_copied_bytes_again", copiedParts: "sent_copied_bytes_parts", copiedWhole: "sent_copied_bytes_whole", copiedOwn: "sent_copied_bytes_own",
	notOurs: "dropped_not_ours", otherVLAN: "dropped_other_vlan", refused: "send_refused", kickErrors: "send_errors", waysLost: "ways_lost", tooLong: "dropped_too_many_frames",
	unsent: "dropped_no_frame"}

// counts are written by who drives the datapath, and read under its lock.
type counts struct {
	own       [counterNumber]uint64
	malformed [wire.Reasons]uint64
}

func (c *counts) add(what counter, n uint64) { c.own[what] += n }

// Counters are what was counted since the device was opened: packets, retries and all else that the protocol counts (transport.Counter);
// packets dropped, by reason (transport.Drop and wire.Malformed); bytes that were copied. They keep their order. It may
// be called from any goroutine, also once the device is closed.
func (d *Device) Counters() []Counter {
	return append(d.ownCounters(), d.management.counters()...)
}

func (d *Device) ownCounters() (list []Counter) {
	d.lock.Lock()
	defer d.unlock()
	m := &d.datapath
	for c := range transport.Counters {
		list = append(list, Counter{c.String(), m.engine.Count(c)})
	}
	for r := range transport.Drops {
		list = append(list, Counter{"dropped_" + r.String(), m.engine.Dropped(r)})
	}
	for why := wire.WellFormed + 1; why < wire.Reasons; why++ {
		list = append(list, Counter{"malformed_" + why.String(), m.counts.malformed[why]})
	}
	for c := counter(1); c < counterNumber; c++ {
		list = append(list, Counter{counterNames[c], m.counts.own[c]})
	}
	return list
}
