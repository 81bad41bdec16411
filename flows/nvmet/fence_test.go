package nvmet

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// Commands of the hosts of these tests. The old host holds the namespace, and the new one takes it.
var (
	registersAnew = uint32(1<<3 | 2) // whatever key there was
	preemptsAll   = uint32(fabrics.WriteExclusive)<<8 | 1
	clearsAll     = uint32(1)
)

// fenced is two servers of a disk that hangs, and what is on it.
type fenced struct {
	*reserved
	disk  *hanging
	count int // blocks of 4096 bytes
}

// TestFencedWhoIsGone: no write of a host lands after another one has preempted it, wherever the first has gone
// while its write was at a disk that hangs: its queue, its controller, its right to connect, its namespace, or its
// server.
func TestFencedWhoIsGone(t *testing.T) {
	var disk *hanging
	v := &fenced{}
	v.reserved = newReserved(t, func(r *rig) *nvme.Target { disk = r.frozen(); return disk.Target })
	v.disk, v.count = disk, 4096/max(int(disk.Alignment().Offset), 512)
	v.one.admin.close()
	v.one.queues[0].close()
	next := v.stations[0].next
	for i, way := range []struct {
		name      string
		keepAlive uint32 // milliseconds
		goes      func(*handMade)
	}{
		{"its queue ends", long, func(h *handMade) { h.queues[0].close(); v.left(1) }},
		{"it disconnects", long, func(h *handMade) { h.queues[0].close(); h.admin.close(); v.left(0) }},
		{"its admin queue ends", long, func(h *handMade) { h.admin.close(); v.left(0) }},
		{"it resets its controller", long, func(h *handMade) { h.admin.succeeds(disable); v.left(1) }},
		{"its keep-alive time is over", 100, func(*handMade) { v.left(0) }},
		{"its queue pair fails", long, func(h *handMade) {
			data := h.keyed(v.at, 8192)
			data.Key++
			v.must(h.queues[0].say(blocks(fabrics.OpWrite, uint64(2*v.count), 2*v.count, data).append(nil, 1001)))
			v.left(1)
		}},
		{"it may not connect any more", long, func(*handMade) {
			v.change(func(s *Subsystem) { s.AnyHost, s.Hosts = false, []string{softHost + "2"} })
			v.left(0)
		}},
		{"its namespace is removed", long, func(*handMade) { v.change(func(s *Subsystem) { s.Namespaces = nil }) }},
		{"its subsystem is removed", long, func(*handMade) { v.change(func(s *Subsystem) { s.NQN += "2" }); v.left(0) }},
		{"its server stops", long, func(*handMade) { v.near.cease(); v.closes() }},
	} {
		v.stations[0].next = next
		if !v.fences(byte(i+1), way.keepAlive, way.goes) {
			t.Errorf("%s: its write landed after the preemption was complete", way.name)
		}
	}
}

// long is a keep-alive time that does not end in a test.
const long = 60_000

// disable ends a controller.
var disable = &message{opcode: fabrics.OpFabrics, fabrics: fabrics.PropertySet, words: [6]uint32{0, 0x14, 6<<16 | 4<<20}}

// left waits until the near server has no more than that many queues.
func (v *fenced) left(queues uint64) {
	v.Helper()
	testenv.Wait(v, waitLimit, "the host to be gone", func() bool {
		n := uint64(0)
		for _, h := range v.near.server.HostStats() {
			n += h.Queues
		}
		return n <= queues
	})
}

// change changes the near server's subsystem.
func (v *fenced) change(by func(*Subsystem)) {
	v.Helper()
	next := slices.Clone(v.configs[0].Subsystems)
	by(&next[0])
	v.must(v.near.do(func() error { _, err := v.near.server.Change(next); return err }))
}

// closes is what a flow that stops does again and again.
func (v *fenced) closes() {
	v.Helper()
	v.must(v.near.do(func() error {
		v.near.ended = true
		err := v.near.server.CloseWithin(time.Millisecond)
		if stuck := new(nvme.StuckError); errors.As(err, &stuck) {
			return nil
		}
		return err
	}))
}

// fences lets the old host go while its write is at the disk, and the new one preempt it. It reports whether the
// write landed before the preemption was complete, or never.
func (v *fenced) fences(mark byte, keepAlive uint32, goes func(*handMade)) bool {
	s, two := v.stations[0], v.two.queues[0]
	old := s.welcomed(s.open(fabrics.AdminQueue, fabrics.AdminDepth), softHost, 1, 32, keepAlive)
	one := old.queues[0]
	for q, key := range map[*hostQueue]uint64{one: keyOne, two: keyTwo} {
		q.succeeds(reserves(fabrics.OpReservationRegister, registersAnew, 0, key))
	}
	one.succeeds(reserves(fabrics.OpReservationAcquire, writeExclusive, keyOne, 0))
	copy(s.bytes(v.at, 4096), bytes.Repeat([]byte{mark}, 4096))
	v.disk.hang()
	defer v.disk.mend()
	v.must(one.say(blocks(fabrics.OpWrite, 0, v.count, s.keyed(v.at, 4096)).append(nil, 1000)))
	testenv.Wait(v, waitLimit, "the write to be at the disk", func() bool { return v.near.server.Stats().Disk.InFlight > 0 })
	goes(old)
	before := v.far.server.reserving.keeper.snapshot.Load().Number
	v.must(two.say(reserves(fabrics.OpReservationAcquire, preemptsAll, keyTwo, keyOne).append(nil, 2000)))
	if !v.acknowledges(before + 1) {
		v.disk.mend()
	}
	testenv.Wait(v, waitLimit, "the preemption to be complete", func() bool {
		if v.near.ended {
			v.closes()
		}
		two.poll()
		return len(two.heard) > 0
	})
	if c, err := two.hear(); err != nil || c.ID != 2000 || c.Status != fabrics.Success {
		v.Fatalf("the preemption: %+v, %v", c, err)
	}
	then := v.content()
	v.disk.mend()
	testenv.Wait(v, waitLimit, "the disk to be done", v.done)
	same := bytes.Equal(then, v.content())
	two.succeeds(reserves(fabrics.OpReservationRelease, clearsAll, keyTwo))
	if !v.near.ended {
		v.change(func(*Subsystem) {})
	}
	old.admin.close()
	one.close()
	return same
}

// done reports whether the near server's disk has nothing to do.
func (v *fenced) done() bool {
	if !v.near.ended {
		return v.near.server.Stats().Disk.InFlight == 0
	}
	v.closes()
	return v.near.server.moving == nil
}

// acknowledges waits until the near server obeys a change, and reports whether others can take it for complete.
func (v *fenced) acknowledges(number uint64) (does bool) {
	v.Helper()
	r := &v.near.server.reserving
	testenv.Wait(v, waitLimit, "the near server to obey", func() bool {
		if v.near.ended {
			v.closes()
		}
		select {
		case <-r.keeper.stop: // it is not asked any more
			does = true
		default:
		}
		return does || r.obeyed.Load().Number >= number
	})
	v.must(v.near.do(func() error { does = does || r.acknowledged >= number; return nil }))
	return does
}

// content returns what is on the disk.
func (v *fenced) content() []byte {
	v.Helper()
	f, err := os.Open(v.disk.Path())
	v.must(err)
	defer f.Close()
	b := make([]byte, 16<<10)
	_, err = f.ReadAt(b, 0)
	v.must(err)
	return b
}

// TestReportWaits: a host whose path has failed asks for a report on another one. It does not see that the others are
// shut out before that is so at every server.
func TestReportWaits(t *testing.T) {
	var disk *hanging
	v := newReserved(t, func(r *rig) *nvme.Target { disk = r.frozen(); return disk.Target })
	s, one, two := v.stations[0], v.one.queues[0], v.two.queues[0]
	count := 4096 / max(int(disk.Alignment().Offset), 512)
	other := &station{}
	*other = *s
	other.id = v.stations[1].id
	again := other.connects(softHost+"2", 1, 32).queues[0] // the second host's other path
	for q, key := range map[*hostQueue]uint64{one: keyOne, two: keyTwo} {
		q.succeeds(reserves(fabrics.OpReservationRegister, 0, 0, key))
	}
	one.succeeds(reserves(fabrics.OpReservationAcquire, writeExclusive, keyOne, 0))
	disk.hang()
	defer disk.mend()
	v.must(one.say(blocks(fabrics.OpWrite, 0, count, s.keyed(v.at, 4096)).append(nil, 1000)))
	testenv.Wait(t, waitLimit, "the write to be at the disk", func() bool { return v.near.server.Stats().Disk.InFlight > 0 })
	v.must(two.say(reserves(fabrics.OpReservationAcquire, preemptsAll, keyTwo, keyOne).append(nil, 2000)))
	testenv.Wait(t, waitLimit, "the other server to obey", func() bool { return v.near.server.NamespaceStats()[0].Reservation == fabrics.WriteExclusive.String() })
	report := &message{opcode: fabrics.OpReservationReport, namespace: 1, data: s.keyed(v.at+8192, 256), words: [6]uint32{63, 1}}
	v.must(again.say(report.append(nil, 1)))
	v.must(again.say(blocks(fabrics.OpRead, 0, count, s.keyed(v.at, 4096)).append(nil, 2)))
	hears := func(q *hostQueue, id uint16) {
		t.Helper()
		if c, err := q.hear(); err != nil || c.ID != id || c.Status != fabrics.Success {
			t.Errorf("%+v, %v, and not the answer to command %d", c, err, id)
		}
	}
	hears(again, 2)
	disk.mend()
	hears(again, 1)
	hears(one, 1000)
	hears(two, 2000)
	if b := s.bytes(v.at+8192, 256); b[5] != 1 || b[72] != keyTwo {
		t.Errorf("the report is %x", b)
	}
}

// TestKeeperHangs: while the file of reservations is on a disk that hangs, closing takes no longer than it may: other
// flows of the worker would wait. When the disk answers, it ends.
func TestKeeperHangs(t *testing.T) {
	testenv.Leaks(t)
	dir := testenv.Ext4(t, 24<<20)
	k, err := openKeeper(filepath.Join(dir, "reservations"))
	testenv.Must(t, err)
	thaw, err := testenv.Freeze(dir)
	testenv.Must(t, err)
	c := &change{place: place{softNQN, 1}, host: fabrics.HostIdentity{ID: [16]byte{1}, NQN: softHost}, command: fabrics.ReservationCommand{Opcode: fabrics.OpReservationRegister, Other: 1}}
	k.requests <- c
	testenv.Wait(t, waitLimit, "the goroutine to have the change", func() bool { return len(k.requests) == 0 })
	if stuck := new(nvme.StuckError); !errors.As(k.closeWithin(time.Millisecond), &stuck) {
		t.Error("it is closed while the file is being written")
	}
	testenv.Check(t, thaw())
	testenv.Wait(t, waitLimit, "the keeper to close", func() bool { return k.closeWithin(time.Millisecond) == nil })
	if !c.done.Load() {
		t.Error("it is closed before the change was made")
	}
}

// TestBorrowedIdentifier: a host that comes with the host identifier of a registered one has none of its rights, whether
// it connects before or after that one has registered.
func TestBorrowedIdentifier(t *testing.T) {
	v := newReserved(t, (*rig).small)
	s, one := v.stations[0], v.one.queues[0]
	early := s.connects(softHost+"3", 1, 32)
	thief := early.queues[0]
	write := blocks(fabrics.OpWrite, 0, 1, s.keyed(v.at, 4096))
	thief.succeeds(write)
	one.succeeds(reserves(fabrics.OpReservationRegister, 0, 0, keyOne))
	one.succeeds(reserves(fabrics.OpReservationAcquire, uint32(fabrics.WriteExclusive)<<8, keyOne, 0))
	thief.refuses(write, fabrics.ReservationConflict)
	for _, c := range []*message{reserves(fabrics.OpReservationRegister, registersAnew, 0, keyOne), reserves(fabrics.OpReservationRegister, 1, keyOne, 0), reserves(fabrics.OpReservationRelease, clearsAll, keyOne)} {
		thief.refuses(c, fabrics.ReservationConflict)
	}
	thief.close()
	early.admin.close()
	q := s.open(fabrics.AdminQueue, fabrics.AdminDepth)
	if got := q.ask(connectCommand(fabrics.AdminQueue, fabrics.AdminDepth, s.connectData(softHost+"4", fabrics.AnyController))); got.Status.Code() != fabrics.ConnectInvalid || got.Result != fabrics.InvalidIdentifier {
		t.Errorf("a host with the identifier of another: %v, %#x", got.Status, got.Result)
	}
	q.close()
	one.succeeds(write)
	s.connects(softHost, 1, 32).queues[0].succeeds(write)
}

// TestKeeperSettles: while a change is not complete, another server neither makes one nor reports.
func TestKeeperSettles(t *testing.T) {
	testenv.Leaks(t)
	all := openKeepers(t)
	have := all[0].snapshot.Load().Number
	asks := func(k *keeper, c fabrics.ReservationCommand) *change {
		one := &change{place: place{softNQN, 1}, host: fabrics.HostIdentity{ID: [16]byte{1}, NQN: softHost}, command: c}
		k.requests <- one
		return one
	}
	register := fabrics.ReservationCommand{Opcode: fabrics.OpReservationRegister, Action: 2, IgnoreKey: true, Other: 1}
	first := asks(all[0], register)
	testenv.Wait(t, waitLimit, "the change", func() bool { return all[1].pending(have) })
	all[0].acknowledge(have + 1)
	refused := asks(all[1], fabrics.ReservationCommand{Opcode: fabrics.OpReservationAcquire, Key: 7, Type: fabrics.WriteExclusive})
	time.Sleep(20 * time.Millisecond)
	if first.done.Load() || refused.done.Load() {
		t.Error("a command is answered although a server has not acknowledged the change before it")
	}
	all[1].acknowledge(have + 1)
	testenv.Wait(t, waitLimit, "both answers", func() bool { return first.done.Load() && refused.done.Load() })
	if first.status != fabrics.Success || refused.status.Code() != fabrics.ReservationConflict {
		t.Errorf("%v, %v", first.status, refused.status)
	}
	report := asks(all[1], fabrics.ReservationCommand{Opcode: fabrics.OpReservationReport})
	testenv.Wait(t, waitLimit, "the report", report.done.Load)
	if report.state == nil || len(report.state.Registrants) != 1 {
		t.Errorf("%+v", report.state)
	}
	for _, k := range all {
		testenv.Check(t, k.err())
	}
}
