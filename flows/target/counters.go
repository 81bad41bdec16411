package target

import (
	"sync/atomic"

	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// moved is operations of one kind, and their bytes.
type moved struct{ operations, bytes counter.Counter }

func (m *moved) add(n uint64) {
	m.operations.Add(1)
	m.bytes.Add(n)
}

// hostCounters are one host's.
type hostCounters struct {
	commands, queues, refused counter.Counter
	read, written             moved
}

// diskCounters are one namespace's.
type diskCounters struct {
	read, written            moved
	flushes, zeroes, discard counter.Counter
	compares                 counter.Counter
	refused, failed          counter.Counter
}

// counters are a server's.
type counters struct {
	commands, admin          counter.Counter
	read, written            moved
	flushes, zeroes, discard counter.Counter
	compares                 counter.Counter
	inCapsule                counter.Counter         // bytes of writes that came with their commands
	brought                  counter.Counter         // bytes of data that hosts gave, in capsules and fetched
	waited                   counter.Counter         // commands that waited for a buffer
	abandoned                counter.Counter         // commands of queues that ended
	refused                  counter.Counter         // commands that were answered with an error of the host's
	failed                   counter.Counter         // commands that the disk did not do
	unproven                 counter.Counter         // queues whose hosts did not prove who they are
	expired                  counter.Counter         // hosts that fell silent
	gaveWay                  counter.Counter         // queues whose hosts had proven nothing, and whose session went to another
	hosts, queues            counter.Counter         // that are connected
	known                    atomic.Pointer[[]*host] // those that are connected; nobody changes what is pointed to
	disks                    atomic.Pointer[[]*disk] // those that are served or not free yet, likewise
	latency                  latency.Shared
	ended                    atomic.Uint64                        // queue pairs that were ended for what their hosts did, or that failed; by any goroutine
	rejected                 [fabrics.RejectReasons]atomic.Uint64 // by any goroutine
}
