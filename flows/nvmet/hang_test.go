package nvmet

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// hanging is a disk that does not answer while it hangs.
type hanging struct {
	*nvme.Target
	hang, mend func()
}

// frozen makes a disk in a file on a file system that the test can freeze. Each write to a frozen
// one occupies a thread of the kernel.
func (r *rig) frozen() *hanging {
	r.Helper()
	dir := testenv.Ext4(r, 24<<20)
	d, err := nvme.OpenTarget(nvme.TargetConfig{Path: dir + "/disk", Create: true, Size: 16 << 20, Prepare: nvme.PrepareZero})
	r.must(err)
	r.Cleanup(func() { r.check(d.Close()) })
	var thaw func() error
	mend := func() {
		if thaw != nil {
			r.check(thaw())
			thaw = nil
		}
	}
	r.Cleanup(mend)
	return &hanging{d, func() {
		thaw, err = testenv.Freeze(dir)
		r.must(err)
	}, mend}
}

// TestHang: a namespace whose disk hangs delays no other namespace, not even on the same queue, and
// no new host. When the disk answers again, the target answers each of its commands once.
func TestHang(t *testing.T) {
	r, s := newSoftRig(t)
	hangs(r, s, r.frozen(), r.zram(16<<20))
}

// hung is a server with two namespaces: the disk of namespace 1 hangs, the disk of namespace 2 does
// not.
type hung struct {
	*rig
	*station
	v    *served
	disk *hanging
	per  [3]int // blocks of 4096 bytes, by namespace
	at   uint64 // memory for commands to the disk that hangs
	live uint64 // memory for commands to the other
}

func hangs(r *rig, s *station, disk *hanging, other *nvme.Target) {
	per := func(d *nvme.Target) int { return 4096 / max(int(d.Alignment().Offset), 512) }
	h := &hung{rig: r, station: s, disk: disk, per: [3]int{1: per(disk.Target), 2: per(other)}, at: s.room(hungCommands * 8192), live: s.room(64 << 10)}
	h.v = r.serve(Config{Sessions: 8, Queues: 2, Depth: hungDepth, Capsule: 4096, Small: 24, Large: 12, Disk: 16,
		Subsystems: []Subsystem{{NQN: softNQN, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: disk.Target}, {ID: 2, Disk: other}}}}})
	for _, part := range []struct {
		name string
		run  func(*hung)
	}{{"others go on", (*hung).others}, {"reset", (*hung).reset}, {"gone", (*hung).gone}} {
		r.Run(part.name, func(t *testing.T) {
			on := *h
			on.rig, on.station = r.with(t), s.with(t)
			part.run(&on)
			on.rest()
		})
	}
}

const (
	hungDepth    = 32
	hungCommands = 28 // to the disk that hangs; the rest of the queue is for the other
	// hungFirst is the ID of the first command to the disk that hangs.
	hungFirst = 1000
)

// about returns a command for count units of 4096 bytes of a namespace.
func (h *hung) about(namespace uint32, opcode uint8, first, count int, data fabrics.Data) *message {
	c := blocks(opcode, uint64(first*h.per[namespace]), count*h.per[namespace], data)
	c.namespace = namespace
	return c
}

// fill fills the memory of command n to the disk that hangs with its data.
func (h *hung) fill(n int, seed byte) []byte {
	b := h.bytes(h.at+uint64(n)*8192, 8192)
	for i := range b {
		b[i] = byte(i>>9) ^ byte(n) ^ seed
	}
	return b
}

// begin sends commands of all sizes and kinds to the disk that hangs.
func (h *hung) begin(q *hostQueue, seed byte) {
	h.rig.Helper()
	for n := range hungCommands {
		b := h.fill(n, seed)
		c := h.about(1, fabrics.OpWrite, 2*n, 2, h.keyed(h.at+uint64(n)*8192, 8192))
		if n%3 == 0 {
			c = h.about(1, fabrics.OpWrite, 2*n, 1, fabrics.Data{Place: fabrics.InCapsule, Length: 4096})
			c.inside = b[:4096]
		}
		if n%4 == 1 {
			c.words[2] |= 1 << 30 // FUA
		}
		if h.disk.Block() && n >= hungCommands-4 {
			c = &message{opcode: fabrics.OpFlush, namespace: 1}
		}
		h.rig.must(q.say(c.append(nil, uint16(hungFirst+n))))
	}
	testenv.Wait(h.rig, waitLimit, "commands to be with the disk that hangs", func() bool { return h.v.server.Stats().Disk.InFlight >= 12 })
}

// finishes waits for the completions of these commands, and checks that each comes once.
func (h *hung) finishes(q *hostQueue, heard []fabrics.Completion) {
	h.rig.Helper()
	for len(heard) < hungCommands {
		c, err := q.hear()
		h.rig.must(err)
		heard = append(heard, c)
	}
	time.Sleep(50 * time.Millisecond)
	q.poll()
	heard = append(heard, q.heard...)
	q.heard = nil
	slices.SortFunc(heard, func(x, y fabrics.Completion) int { return int(x.ID) - int(y.ID) })
	for n, c := range heard {
		if int(c.ID) != hungFirst+n || c.Status != fabrics.Success {
			h.rig.Fatalf("%d completions; the %dth in order is of command %d: %v", len(heard), n, c.ID, c.Status)
		}
	}
}

// written checks that the disk has the data that begin wrote.
func (h *hung) written(q *hostQueue, seed byte) {
	h.rig.Helper()
	h.read(q, func(n int, got []byte) {
		if !bytes.Equal(got, h.fill(n, seed)[:len(got)]) {
			h.rig.Fatalf("write %d is not on the disk as it was said", n)
		}
	})
}

// read reads the blocks of each write of begin.
func (h *hung) read(q *hostQueue, check func(n int, got []byte)) {
	h.rig.Helper()
	for n := range hungCommands {
		if h.disk.Block() && n >= hungCommands-4 {
			continue
		}
		count := 2
		if n%3 == 0 {
			count = 1
		}
		q.succeeds(h.about(1, fabrics.OpRead, 2*n, count, h.keyed(h.live, uint64(count)<<12)))
		check(n, h.bytes(h.live, uint64(count)<<12))
	}
}

// work writes and reads the disk that does not hang, short and long, and returns the time that this
// took.
func (h *hung) work(q *hostQueue) time.Duration {
	h.rig.Helper()
	begin := time.Now()
	for i := range 50 {
		units, from := 1+15*(i%2), h.live
		n := uint64(units) << 12
		data := h.bytes(from, n)
		for k := range data {
			data[k] = byte(k>>9 + i)
		}
		want := string(data)
		for _, opcode := range []uint8{fabrics.OpWrite, fabrics.OpFlush, fabrics.OpRead} {
			c := h.about(2, opcode, i, units, h.keyed(from, n))
			if opcode == fabrics.OpFlush {
				c = &message{opcode: opcode, namespace: 2}
			}
			q.succeeds(c)
			if opcode == fabrics.OpWrite {
				clear(data)
			}
		}
		if string(data) != want {
			h.rig.Fatal("the disk that does not hang has something else than was written")
		}
	}
	return time.Since(begin)
}

// rest waits until the server has no state of any host.
func (h *hung) rest() {
	h.rig.Helper()
	testenv.Wait(h.rig, waitLimit, "the hosts to be gone", func() bool {
		s := h.v.server.Stats()
		return s.Hosts == 0 && s.Queues == 0 && s.Disk.InFlight == 0
	})
	v := *h.v
	v.rig = h.rig
	v.rest()
	h.rig.check(v.do(func() error {
		s := v.server
		for i := range s.sessions {
			if s.sessions[i].state != sessionFree {
				return fmt.Errorf("seat %d is in state %d", i, s.sessions[i].state)
			}
		}
		for _, d := range s.disks {
			if d.users != 0 || d.moving != 0 || d.ranges != 0 || d.held != [2]int{} || d.waiting.len+d.unplaced.len != 0 {
				return fmt.Errorf("of namespace %d there is left: %d operations, %d at the disk, %d ranges, buffers %v, %d and %d in line", d.ID, d.users, d.moving, d.ranges, d.held, d.waiting.len,
					d.unplaced.len)
			}
		}
		if s.moves != 0 || s.ranges != 0 || s.inLine != 0 || s.waiting != 0 {
			return fmt.Errorf("%d moves, %d ranges, %d in line, %d waiting", s.moves, s.ranges, s.inLine, s.waiting)
		}
		return nil
	}))
}

func (h *hung) hang(all ...*handMade) {
	for _, one := range all {
		for _, q := range append(one.queues, one.admin) {
			q.close()
		}
	}
}

// others: the other namespace continues at its rate, on the queue with the hanging commands and on
// other queues. A new host can connect. The target answers an Abort, and does not abort the
// command.
func (h *hung) others() {
	good, second := h.connects(softHost, 1, hungDepth), h.connects(softHost+"2", 1, hungDepth)
	before := h.work(good.queues[0]) + h.work(second.queues[0])
	h.disk.hang()
	defer h.disk.mend()
	q := good.queues[0]
	h.begin(q, 1)
	var during time.Duration
	for _, one := range []*handMade{good, second} {
		during += h.work(one.queues[0])
	}
	h.Logf("150 commands to each of two hosts took %v, and beside the disk that hangs %v", before, during)
	if limit := 4*before + time.Second; during > limit {
		h.rig.Errorf("they took %v beside the disk that hangs, and %v before", during, before)
	}
	third := h.connects(softHost+"3", 2, hungDepth)
	h.work(third.queues[1])
	for _, id := range []uint32{hungFirst, hungFirst + hungCommands - 1, hungFirst, 7} {
		if got := good.admin.succeeds(&message{opcode: fabrics.OpAbort, words: [6]uint32{id<<16 | 1}}); got.Result&1 != 1 {
			h.rig.Errorf("Abort of command %d says that it was aborted: result %#x", id, got.Result)
		}
	}
	if q.poll(); len(q.heard) > 0 {
		h.rig.Fatalf("%d commands to the disk that hangs are answered: %v", len(q.heard), q.heard[0])
	}
	h.disk.mend()
	h.finishes(q, nil)
	h.written(q, 1)
	h.hang(good, second, third)
}

// reset: a host resets its controller while its commands hang, and reconnects a queue to the same
// controller. The disk keeps the frames of the old commands until it is done, and new commands use
// other frames.
func (h *hung) reset() {
	good := h.connects(softHost, 1, hungDepth)
	h.disk.hang()
	defer h.disk.mend()
	h.begin(good.queues[0], 2)
	disable := &message{opcode: fabrics.OpFabrics, fabrics: fabrics.PropertySet, words: [6]uint32{0, 0x14, 6<<16 | 4<<20}}
	good.admin.succeeds(disable)
	good.queues[0].gone("the controller was reset")
	good.queues[0].close()
	atDisk := h.v.server.Stats().Disk.InFlight // some commands may have reached the disk before the reset
	good.admin.succeeds(enable)
	again := h.open(1, hungDepth)
	again.succeeds(connectCommand(1, hungDepth, connectData(softHost, softNQN, good.controller)))
	h.work(again)
	if now := h.v.server.Stats().Disk.InFlight; now != atDisk {
		h.rig.Errorf("%d operations are with the disk, and %d were when the host was gone", now, atDisk)
	}
	h.disk.mend()
	testenv.Wait(h.rig, waitLimit, "the disk to be done", func() bool { return h.v.server.Stats().Disk.InFlight == 0 })
	h.settled(again, int(atDisk))
	good.queues = []*hostQueue{again}
	h.hang(good)
}

// settled checks the writes of an ended queue. Each is on the disk completely or not at all: the
// disk completed those that it had, and the server dropped the others.
func (h *hung) settled(q *hostQueue, atDisk int) {
	h.rig.Helper()
	whole := 0
	h.read(q, func(n int, got []byte) {
		switch string(got) {
		case string(h.fill(n, 2)[:len(got)]):
			whole++
		case string(h.fill(n, 1)[:len(got)]):
		default:
			h.rig.Errorf("write %d is on the disk as it was never said", n)
		}
	})
	if whole == 0 || whole > atDisk {
		h.rig.Errorf("%d of the writes were done, and the disk had %d operations when the queue ended", whole, atDisk)
	}
}

// gone: hosts vanish one after the other while their commands hang, and other hosts connect. When
// the disk answers again, the server gets everything back.
func (h *hung) gone() {
	h.disk.hang()
	defer h.disk.mend()
	next := h.station.next
	for i := range 3 {
		h.station.next = next
		one := h.connects(softHost, 1, hungDepth)
		q := one.queues[0]
		for n := range 4 {
			h.rig.must(q.say(h.about(1, fabrics.OpWrite, 2*n, 2, h.keyed(h.at, 8192)).append(nil, uint16(hungFirst+n))))
		}
		testenv.Wait(h.rig, waitLimit, "a write to hang", func() bool { return h.v.server.Stats().Disk.InFlight >= uint64(2*i+1) })
		h.hang(one)
	}
	testenv.Wait(h.rig, waitLimit, "them to be gone", func() bool { return h.v.server.Stats().Hosts == 0 })
	h.station.next = next
	last := h.connects(softHost+"2", 1, hungDepth)
	h.work(last.queues[0])
	h.disk.mend()
	h.hang(last)
}
