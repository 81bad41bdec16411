package nvmet

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// TestAllocatesNothing: commands do not allocate, neither in the server nor in the code around it.
func TestAllocatesNothing(t *testing.T) {
	testenv.NoRace(t, "it allocates by itself")
	r, s := newSoftRig(t)
	r.serve(Config{Sessions: 4, Queues: 2, Depth: 32, Capsule: 4096, Small: 64, Large: 8, Subsystems: []Subsystem{{NQN: softNQN, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: r.zram(64 << 20)}}}}})
	q := s.connects(softHost, 1, 32).queues[0]
	at := s.room(256 << 10)
	inside := blocks(fabrics.OpWrite, 3, 1, fabrics.Data{Place: fabrics.InCapsule, Length: 4096})
	inside.inside = s.bytes(at, 4096)
	durable := blocks(fabrics.OpWrite, 5, 1, s.keyed(at, 4096))
	durable.words[2] |= 1 << 30
	for _, c := range []struct {
		name string
		*message
	}{
		{"read", blocks(fabrics.OpRead, 1, 1, s.keyed(at, 4096))}, {"long read", blocks(fabrics.OpRead, 1, 16, s.keyed(at, 64<<10))},
		{"write", blocks(fabrics.OpWrite, 1, 1, s.keyed(at, 4096))}, {"long write", blocks(fabrics.OpWrite, 1, 16, s.keyed(at, 64<<10))},
		{"write in the capsule", inside}, {"write with FUA", durable}, {"flush", &message{opcode: fabrics.OpFlush, namespace: 1}},
		{"compare", blocks(fabrics.OpCompare, 1, 1, s.keyed(at, 4096))}, {"write zeroes", blocks(fabrics.OpWriteZeroes, 20, 1, fabrics.Data{})},
		{"refused", blocks(fabrics.OpRead, 1<<40, 1, s.keyed(at, 4096))},
	} {
		t.Run(c.name, func(t *testing.T) {
			on := *q
			on.station = s.with(t)
			on.repeat(c.message, 100)
			const commands = 400
			if n := testenv.Allocs(t, commands/20, func() { on.repeat(c.message, commands) }); n > 0 {
				t.Errorf("20 commands allocate %d times", n)
			}
			q.sent, q.free = on.sent, on.free
		})
	}
}

// with returns the station for a part of its test.
func (s *station) with(t *testing.T) *station {
	on := *s
	on.rig = s.rig.with(t)
	return &on
}

// repeat performs a command a number of times, eight at a time.
func (q *hostQueue) repeat(c *message, times int) {
	q.Helper()
	b := c.append(make([]byte, 0, capsuleRoom), 0)
	q.heard = make([]fabrics.Completion, 0, times)
	said := 0
	q.until("the completions", func() bool {
		for ; said < times && said-len(q.heard) < 8 && len(q.free) > 0; said++ {
			slot := q.free[len(q.free)-1]
			q.free = q.free[:len(q.free)-1]
			copy(q.bytes(q.capsules+slot*capsuleRoom, capsuleRoom), b)
			q.must(q.saySlot(slot, uint64(len(b))))
		}
		q.poll()
		return len(q.heard) == times || q.broken != nil
	})
	q.must(q.broken)
	q.heard = nil
}
