package nvmet

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// noticeWaits is the result of the event after which a host reads the reservation notification log.
const (
	noticeWaits = 6 | 0x80<<16
	noticePage  = 0x80
)

// Keys of hosts, and types of reservations.
const (
	keyOne, keyTwo = 0x11, 0x22
	writeExclusive = uint32(fabrics.WriteExclusiveRegistrants) << 8
)

// reserves returns a command of reservations with its data in the capsule.
func reserves(opcode uint8, word uint32, keys ...uint64) *message {
	c := &message{opcode: opcode, namespace: 1, words: [6]uint32{word}}
	for _, k := range keys {
		c.inside = binary.LittleEndian.AppendUint64(c.inside, k)
	}
	c.data = fabrics.Data{Place: fabrics.InCapsule, Length: uint32(len(c.inside))}
	return c
}

// reserved is two servers of one disk and one file of reservations, each with a host.
type reserved struct {
	*rig
	file      string
	near, far *served
	one, two  *handMade
	configs   [2]Config
	rigs      [2]*rig
	stations  [2]*station
	at        uint64
}

// small returns a disk in memory.
func (r *rig) small() *nvme.Target { return r.zram(16 << 20) }

// newReserved serves a disk by two servers.
func newReserved(t *testing.T, open func(*rig) *nvme.Target) *reserved {
	t.Helper()
	r, s := newSoftRig(t)
	v := &reserved{rig: r, file: filepath.Join(t.TempDir(), "reservations")}
	disk := open(r)
	beside, hosts := r.at(s, strings.Replace(r.listen, ":4420", ":4421", 1))
	v.at = s.room(64 << 10)
	s.id, hosts.id = "the first host..", "the second host."
	v.rigs, v.stations = [2]*rig{r, beside}, [2]*station{s, hosts}
	for i := range v.configs {
		v.configs[i] = Config{Sessions: 4, Queues: 2, Depth: 32, Capsule: 4096, Small: 8, Large: 5, FirstController: uint16(100 * (i + 1)), LastController: uint16(100*(i+1) + 50), Reservations: v.file,
			Subsystems: []Subsystem{{NQN: softNQN, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: disk}}}}}
	}
	v.near, v.far = r.serve(v.configs[0]), beside.serve(v.configs[1])
	v.one = s.connects(softHost, 1, 32)
	hosts.next = s.next // they share the memory
	v.two = hosts.connects(softHost+"2", 1, 32)
	s.next = hosts.next
	return v
}

// TestFencing: two hosts, each at a server of its own, reserve a namespace and shut each other out. A
// command takes effect at both servers before it completes.
func TestFencing(t *testing.T) {
	v := newReserved(t, (*rig).small)
	s, one, two := v.stations[0], v.one.queues[0], v.two.queues[0]
	data := s.keyed(v.at, 4096)
	write, read := blocks(fabrics.OpWrite, 0, 1, data), blocks(fabrics.OpRead, 0, 1, data)
	two.refuses(reserves(fabrics.OpReservationAcquire, writeExclusive, keyTwo, 0), fabrics.ReservationConflict)
	one.succeeds(reserves(fabrics.OpReservationRegister, 0, 0, keyOne))
	binary.LittleEndian.PutUint64(s.bytes(v.at+8192, 16)[8:], keyTwo) // this one is fetched from the host's memory
	two.succeeds(&message{opcode: fabrics.OpReservationRegister, namespace: 1, data: s.keyed(v.at+8192, 16)})
	one.succeeds(reserves(fabrics.OpReservationAcquire, writeExclusive, keyOne, 0))
	two.succeeds(write) // it is registered
	two.succeeds(reserves(fabrics.OpReservationRegister, 1, keyTwo, 0))
	two.refuses(write, fabrics.ReservationConflict)
	two.refuses(&message{opcode: fabrics.OpFlush, namespace: 1}, fabrics.ReservationConflict)
	two.succeeds(read)
	one.succeeds(write)
	if st := v.far.server.NamespaceStats()[0]; st.Conflicts != 3 || st.Refused+st.Failed != 0 || st.Reservation != "write exclusive, registrants only" {
		t.Errorf("%+v", st)
	}
	if st := v.far.server.Stats(); st.Conflicts != 3 {
		t.Errorf("%+v", st)
	}

	// The second host takes over, while the first one writes.
	two.succeeds(reserves(fabrics.OpReservationRegister, 0, 0, keyTwo))
	v.one.admin.awaits()
	const writes = 24
	for n := range uint16(writes) {
		v.must(one.say(blocks(fabrics.OpWrite, uint64(n), 1, data).append(nil, 1000+n)))
	}
	two.succeeds(reserves(fabrics.OpReservationAcquire, uint32(fabrics.ExclusiveAccess)<<8|2, keyTwo, keyOne))
	mark := bytes.Repeat([]byte("mine"), 1024)
	copy(s.bytes(v.at+16384, 4096), mark)
	two.succeeds(blocks(fabrics.OpWrite, writes-1, 1, s.keyed(v.at+16384, 4096))) // the first host can no longer overwrite it
	for range writes {
		if c, err := one.hear(); err != nil || c.Status != fabrics.Success && c.Status.Code() != fabrics.ReservationConflict {
			t.Errorf("a write of the host that is shut out: %v, %v", c.Status, err)
		}
	}
	one.refuses(read, fabrics.ReservationConflict)
	two.succeeds(blocks(fabrics.OpRead, writes-1, 1, s.keyed(v.at+20480, 4096)))
	if !bytes.Equal(s.bytes(v.at+20480, 4096), mark) {
		t.Error("what the new holder wrote is overwritten")
	}
	v.one.admin.hears(noticeWaits)
	if page := v.one.admin.logPage(noticePage, v.at); page[8] != byte(fabrics.RegistrationPreempted) || page[12] != 1 {
		t.Errorf("the notice is %x", page[:16])
	}
	report := s.keyed(v.at, 256)
	v.one.queues[0].succeeds(&message{opcode: fabrics.OpReservationReport, namespace: 1, data: report, words: [6]uint32{63, 1}})
	b := s.bytes(v.at, 256)
	if b[4] != byte(fabrics.ExclusiveAccess) || b[5] != 1 || b[66] != 1 || b[72] != keyTwo || string(b[80:96]) != v.stations[1].id[:16] || b[128] != 0 {
		t.Errorf("the report is %x", b)
	}
	v.one.queues[0].refuses(&message{opcode: fabrics.OpReservationReport, namespace: 1, data: report, words: [6]uint32{63}}, fabrics.HostIdentifierFormat)
	v.one.queues[0].refuses(&message{opcode: fabrics.OpReservationReport, namespace: 1, data: report, words: [6]uint32{62, 1}}, fabrics.InvalidSGLLength)
	v.one.queues[0].refuses(reserves(fabrics.OpReservationRegister, 0, 0), fabrics.InvalidSGLLength)
	v.one.queues[0].refuses(reserves(fabrics.OpReservationRegister, 7, 0, 1), fabrics.InvalidField)
	v.near.rest()
	v.far.rest()
}

// TestFencingWaits: a preemption completes when the writes have ended that it forbids, also those that
// another server has at a disk that hangs.
func TestFencingWaits(t *testing.T) {
	var disk *hanging
	v := newReserved(t, func(r *rig) *nvme.Target { disk = r.frozen(); return disk.Target })
	s, one, two := v.stations[0], v.one.queues[0], v.two.queues[0]
	count := 4096 / max(int(disk.Alignment().Offset), 512)
	for q, key := range map[*hostQueue]uint64{one: keyOne, two: keyTwo} {
		q.succeeds(reserves(fabrics.OpReservationRegister, 0, 0, key))
	}
	disk.hang()
	v.must(one.say(blocks(fabrics.OpWrite, 0, count, s.keyed(v.at, 4096)).append(nil, 1000)))
	testenv.Wait(t, waitLimit, "the write to be at the disk", func() bool { return v.near.server.Stats().Disk.InFlight > 0 })
	v.must(two.say(reserves(fabrics.OpReservationAcquire, uint32(fabrics.WriteExclusive)<<8, keyTwo, 0).append(nil, 2000)))
	testenv.Wait(t, waitLimit, "the other server to obey", func() bool { return v.near.server.NamespaceStats()[0].Reservation != "" })
	one.refuses(blocks(fabrics.OpWrite, 0, count, s.keyed(v.at, 4096)), fabrics.ReservationConflict)
	time.Sleep(100 * time.Millisecond)
	if two.poll(); len(two.heard) > 0 {
		t.Errorf("the reservation is complete while a write of another host is at the disk: %+v", two.heard)
	}
	disk.mend()
	for q, id := range map[*hostQueue]uint16{one: 1000, two: 2000} {
		if c, err := q.hear(); err != nil || c.ID != id || c.Status != fabrics.Success {
			t.Errorf("command %d: %+v, %v", id, c, err)
		}
	}
}

// TestReservationsStay: what hosts have reserved is there when a server has ended and begins again. A
// server that has ended is not waited for.
func TestReservationsStay(t *testing.T) {
	v := newReserved(t, (*rig).small)
	v.one.queues[0].succeeds(reserves(fabrics.OpReservationRegister, 0, 0, keyOne))
	v.one.queues[0].succeeds(reserves(fabrics.OpReservationAcquire, writeExclusive, keyOne, 0))
	v.two.admin.close()
	v.two.queues[0].close()
	v.far.stop()
	v.one.queues[0].succeeds(reserves(fabrics.OpReservationRegister, 2, keyOne, keyTwo))
	again := v.rigs[1].serve(v.configs[1])
	two := v.stations[1].connects(softHost+"2", 1, 32)
	two.queues[0].refuses(blocks(fabrics.OpWrite, 0, 1, v.stations[0].keyed(v.at, 4096)), fabrics.ReservationConflict)
	if st := again.server.NamespaceStats()[0]; st.Reservation == "" {
		t.Errorf("%+v", st)
	}
}

// openKeepers opens a file of reservations twice.
func openKeepers(t *testing.T) (all [2]*keeper) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "reservations")
	for i := range all {
		k, err := openKeeper(path)
		testenv.Must(t, err)
		t.Cleanup(func() { _ = k.Close() })
		all[i] = k
	}
	return all
}

// TestKeeperWaits: a change is complete when every server has acknowledged it. It is not waited for a
// server that is gone.
func TestKeeperWaits(t *testing.T) {
	testenv.Leaks(t)
	all := openKeepers(t)
	apply := func(key uint64) *change {
		c := &change{place: place{softNQN, 1}, host: fabrics.HostIdentity{ID: [16]byte{1}, NQN: softHost}, command: fabrics.ReservationCommand{Opcode: fabrics.OpReservationRegister, Action: 2, IgnoreKey: true, Other: key}}
		all[0].requests <- c
		return c
	}
	wait := func(what string, is func() bool) { t.Helper(); testenv.Wait(t, waitLimit, what, is) }
	have := all[0].snapshot.Load().Number
	c := apply(1)
	wait("the change", func() bool { return all[0].pending(have) && all[1].pending(have) })
	all[0].acknowledge(have + 1)
	time.Sleep(20 * time.Millisecond)
	if c.done.Load() {
		t.Error("it is complete before the other server has acknowledged it")
	}
	all[1].acknowledge(have + 1)
	wait("the end of the change", c.done.Load)
	if n := len(all[1].snapshot.Load().of(c.place).Registrants); c.status != fabrics.Success || n != 1 {
		t.Errorf("%v, %d registrants at the other server", c.status, n)
	}
	c = apply(2)
	all[0].acknowledge(have + 2)
	testenv.Check(t, all[1].Close())
	wait("the end of the change without the other server", c.done.Load)
	testenv.Check(t, all[0].err())
}

// TestKeeperRefuses: files that cannot be used are refused in words.
func TestKeeperRefuses(t *testing.T) {
	dir := t.TempDir()
	refused := func(path, want string) {
		t.Helper()
		k, err := openKeeper(path)
		if err == nil {
			err = k.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	other := filepath.Join(dir, "other")
	testenv.Must(t, os.WriteFile(other, []byte("text"), 0o600))
	refused(other, "no file of reservations")
	refused(filepath.Join(dir, "none", "file"), "no such file")
	refused(dir, "is a directory")
	good := filepath.Join(dir, "good")
	k, err := openKeeper(good)
	if err == nil {
		err = k.Close()
	}
	testenv.Must(t, err)
	b, err := os.ReadFile(good)
	if err != nil || len(b) != fileLen {
		t.Fatalf("%d bytes: %v", len(b), err)
	}
	for _, at := range []int{keeperPage, keeperPage + areaLen} {
		b[at+30]++
	}
	testenv.Must(t, os.WriteFile(good, b, 0o600))
	refused(good, "damaged")
	short := filepath.Join(dir, "short") // such as after a loss of power in the first moment
	testenv.Must(t, os.WriteFile(short, make([]byte, 100), 0o600))
	if k, err := openKeeper(short); err != nil || k.Close() != nil {
		t.Errorf("a file of zeros: %v", err)
	}
	var full []*keeper
	for {
		k, err := openKeeper(filepath.Join(dir, "full"))
		if err != nil {
			if len(full) != members || !strings.Contains(err.Error(), "32 servers") {
				t.Errorf("%d servers, then %v", len(full), err)
			}
			break
		}
		full = append(full, k)
	}
	for _, k := range full {
		testenv.Check(t, k.Close())
	}
}

// TestRecordSurvives: a record whose write was cut short gives way to the one before. What does not
// persist through a loss of power is gone when the machine has started again.
func TestRecordSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reservations")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	testenv.Must(t, err)
	defer f.Close()
	testenv.Must(t, f.Truncate(fileLen))
	r := &record{Boot: "another", Places: map[place]*fabrics.Reservations{}}
	for n := range uint64(4) {
		r.Number = n + 1
		r.Places[place{softNQN, uint32(n + 1)}] = &fabrics.Reservations{Persist: n == 1, Registrants: []fabrics.Registrant{{Host: [16]byte{1}, Key: 1}}}
		testenv.Must(t, writeRecord(f, r))
	}
	if got, err := readRecord(f); err != nil || got.Number != 4 || len(got.Places) != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := f.WriteAt([]byte("torn"), keeperPage+40); err != nil { // in the area of even numbers
		t.Fatal(err)
	}
	if got, err := readRecord(f); err != nil || got.Number != 3 || len(got.Places) != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	k, err := openKeeper(path)
	testenv.Must(t, err)
	defer k.Close()
	if got := k.snapshot.Load(); got.Number != 4 || len(got.Places) != 1 || got.Places[place{softNQN, 2}] == nil || got.Boot != bootID() {
		t.Errorf("after a start of the machine: %+v", got)
	}
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: lockChange, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l); err != nil || l.Type != unix.F_UNLCK {
		t.Errorf("the lock of changes is held: %+v, %v", l, err)
	}
}

// FuzzRecord: whatever is in the file, what is read from it makes sense.
func FuzzRecord(f *testing.F) {
	r := &record{Number: 7, Boot: "boot", Places: map[place]*fabrics.Reservations{{softNQN, 1}: {Type: fabrics.WriteExclusive, Holder: [16]byte{1}, Registrants: []fabrics.Registrant{{Host: [16]byte{1}, Key: 1}}}}}
	b, err := r.encode()
	testenv.Must(f, err)
	f.Add(b[areaHeader:])
	f.Add([]byte(`{"Number":7,"Places":{"1 nqn.a":null}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decodeRecord(seal(body, 7))
		if err != nil || got == nil {
			return
		}
		for at, one := range got.Places {
			if err := one.Check(); err != nil || !fabrics.ValidNQN(at.Subsystem) {
				t.Errorf("%+v: %+v, %v", at, one, err)
			}
		}
		got.clone().tell(place{softNQN, 1}, []fabrics.Notice{{Kind: 1}})
	})
}
