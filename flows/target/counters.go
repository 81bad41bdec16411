package target

import (
	"sync/atomic"

	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// counter is one that the worker's thread writes and any goroutine reads.
type counter struct{ atomic.Uint64 }

func (c *counter) add(n uint64) { c.Store(c.Load() + n) }

// moved is operations of one kind, and their bytes.
type moved struct{ operations, bytes counter }

func (m *moved) add(n uint64) {
	m.operations.add(1)
	m.bytes.add(n)
}

// hostCounters are one host's.
type hostCounters struct {
	commands, queues, refused counter
	read, written             moved
}

// diskCounters are one namespace's.
type diskCounters struct {
	read, written            moved
	flushes, zeroes, discard counter
	compares                 counter
	refused, failed          counter
}

// counters are a server's.
type counters struct {
	commands, admin          counter
	read, written            moved
	flushes, zeroes, discard counter
	compares                 counter
	inCapsule                counter                 // bytes of writes that came with their commands
	brought                  counter                 // bytes of data that hosts gave, in capsules and fetched
	waited                   counter                 // commands that waited for a buffer
	abandoned                counter                 // commands of queues that ended
	refused                  counter                 // commands that were answered with an error of the host's
	failed                   counter                 // commands that the disk did not do
	unproven                 counter                 // queues whose hosts did not prove who they are
	expired                  counter                 // hosts that fell silent
	gaveWay                  counter                 // queues whose hosts had proven nothing, and whose seat went to another
	hosts, queues            counter                 // that are connected
	known                    atomic.Pointer[[]*host] // those that are connected; nobody changes what is pointed to
	disks                    atomic.Pointer[[]*disk] // those that are served or not free yet, likewise
	latency                  latency.Shared
	ended                    atomic.Uint64                        // queue pairs that were ended for what their hosts did, or that failed; by any goroutine
	rejected                 [fabrics.RejectReasons]atomic.Uint64 // by any goroutine
}
