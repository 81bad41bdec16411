package nvmet

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// fencedBlocks is the number of blocks of 4096 bytes that the hosts of TestFencedSchedules write.
const fencedBlocks = 16

// battle is a disk that hangs, served by two daemons. The old host is at the near one, which the test ends in
// all ways. The new host is at the far one, and takes the disk over.
type battle struct {
	*rig
	random    *rand.Rand
	near, far *daemon
	old, new  *station
	host      *handMade // the old one
	two       *hostQueue
	at        uint64 // memory for data, of both stations
	next      uint64 // the old station's memory after that
	loop      string // the disk
	backing   string // the file in which it is
	frozen    func() error
	per       int           // blocks of the namespace in 4096 bytes
	stopped   bool          // the near daemon, by SIGSTOP
	gone      bool          // the old host has no queue any more
	asked     chan struct{} // closed when the daemon has answered; nil: it was not asked
	last      []byte        // what the disk has; nil: not known
	count     int           // schedules so far
	waited    int           // preemptions that completed after the disk went on
}

// daemon is one process and its configuration.
type daemon struct {
	*killed
	end    func(syscall.Signal) // nil: it does not run
	ending chan struct{}        // closed when the process has ended
}

// TestFencedSchedules: two daemons serve a disk. The disk hangs, the first host writes, its daemon is killed, stopped
// or changed, or the host goes; the second host preempts it; the disk goes on; all in the order of a schedule.
// Once the preemption is complete no block changes any more but by the second host.
func TestFencedSchedules(t *testing.T) {
	schedules := uint64(3)
	if !testing.Short() {
		schedules = setting.Number(t, "UNIFIEDD_KILLS", 20)
	}
	seed := setting.Seed(t)
	testenv.Root(t)
	testenv.Leaks(t)
	b := newBattle(t, rand.New(rand.NewPCG(seed, 50)))
	for range schedules {
		b.schedule()
	}
	b.quiet("after the last schedule")
	t.Logf("%d schedules; in %d the preemption completed when the disk went on", b.count, b.waited)
	if b.waited == 0 {
		t.Error("no preemption has waited for the disk: the schedules show nothing")
	}
}

func newBattle(t *testing.T, random *rand.Rand) *battle {
	t.Helper()
	dir := testenv.Ext4(t, 24<<20)
	b := &battle{random: random, backing: filepath.Join(dir, "disk")}
	testenv.Must(t, os.WriteFile(b.backing, make([]byte, 8<<20), 0o600))
	b.loop = testenv.Loop(t, b.backing, 0)
	sector, err := b.sector()
	testenv.Must(t, err)
	b.per = 4096 / sector
	configs := t.TempDir()
	program := testenv.Program(t, "cmd/unifiedd")
	for i, d := range []**daemon{&b.near, &b.far} {
		pair := testenv.NewPair(t, testenv.PairOptions{MTU: 4200})
		r := &rig{T: t, listen: pair.B.IP.String() + ":4420"}
		*d = &daemon{killed: &killed{rig: r, station: softStation(r, &pair.A), end: &pair.B, program: program, file: filepath.Join(configs, fmt.Sprintf("%d.yaml", i))}}
		(*d).config(b, i)
	}
	b.rig, b.old, b.new = b.near.rig, b.near.station, b.far.station
	b.old.id, b.new.id = "the old host....", "the new host...."
	b.at = b.old.room(fencedBlocks << 12)
	if other := b.new.room(fencedBlocks << 12); other != b.at {
		t.Fatal("the stations have their memory at different places")
	}
	b.next = b.old.next
	b.far.starts()
	b.two = b.new.connects(softHost+"2", 1, 32).queues[0]
	return b
}

// sector returns the block size of the disk, which is that of the namespace.
func (b *battle) sector() (int, error) {
	f, err := os.Open(b.loop)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return unix.IoctlGetInt(int(f.Fd()), unix.BLKSSZGET)
}

// config writes a daemon's configuration.
func (d *daemon) config(b *battle, number int) {
	d.rig.Helper()
	d.rig.must(os.WriteFile(d.file, fmt.Appendf(nil, `
control: {socket: %s.sock}
region: {size: 64MiB, extents: 16, pages: ordinary}
flows:
  - name: volume
    from: {device: %s}
    to: {rdma: "roce:%s", listen: %q, subsystem: %q, allow_any_host: true, clients: 8, window: 32, force: true, reservations: %s, controllers: %d-%d}
`, d.file, b.loop, d.killed.end.Ifname, d.rig.listen, softNQN, filepath.Join(filepath.Dir(d.file), "reservations"), 100*number+1, 100*number+99), 0o600))
}

// starts launches the daemon, unless it runs.
func (d *daemon) starts() {
	if d.end == nil {
		d.end = d.launch()
	}
}

// signals ends the daemon by a signal, and does not wait for that.
func (d *daemon) signals(s syscall.Signal) {
	end := d.end
	d.end, d.ending = nil, make(chan struct{})
	done := d.ending
	go func() { end(s); close(done) }()
}

// stops has the daemon stop its flow, and does not wait for that. It may fail, if the daemon is ended.
func (d *daemon) stops() (over chan struct{}) {
	over = make(chan struct{})
	go func() {
		defer close(over)
		out, err := exec.Command(d.program, "stop", "volume", "--socket", d.file+".sock").CombinedOutput()
		d.rig.Logf("unifiedd stop: %v %s", err, out)
	}()
	return over
}

// hangs and mend freeze the file system of the disk, and let it go on.
func (b *battle) hangs() {
	var err error
	b.frozen, err = testenv.Freeze(filepath.Dir(b.backing))
	b.must(err)
}

func (b *battle) mend() {
	if thaw := b.frozen; thaw != nil {
		b.frozen = nil
		b.check(thaw())
	}
}

// content returns what is on the disk.
func (b *battle) content() []byte {
	b.Helper()
	f, err := os.Open(b.backing)
	b.must(err)
	defer f.Close()
	all := make([]byte, fencedBlocks<<12)
	_, err = f.ReadAt(all, 0)
	b.must(err)
	return all
}

// busy reports whether the disk has requests.
func (b *battle) busy() bool {
	b.Helper()
	text, err := os.ReadFile("/sys/block/" + filepath.Base(b.loop) + "/inflight")
	b.must(err)
	return strings.Join(strings.Fields(string(text)), " ") != "0 0"
}

// quiet waits until the disk has nothing to do, and checks that it has what it had when the last preemption was complete
// and the new host had written.
func (b *battle) quiet(when string) {
	b.Helper()
	testenv.Wait(b, waitLimit, "the disk to be done", func() bool { return !b.busy() })
	now := b.content()
	if b.last != nil && !bytes.Equal(now, b.last) {
		for block := range fencedBlocks {
			have, want := now[block<<12:][:16], b.last[block<<12:][:16]
			if !bytes.Equal(have, want) {
				b.Errorf("schedule %d, %s: block %d has %q, and had %q when the preemption was complete", b.count, when, block, have, want)
			}
		}
		b.last = nil
	}
}

// data fills a station's memory with a host's data of this schedule.
func (b *battle) data(s *station, who string) {
	for block := range uint64(fencedBlocks) {
		copy(s.bytes(b.at+block<<12, 4096), bytes.Repeat(fmt.Appendf(nil, "%s %06d %02d  ", who, b.count, block), 300))
	}
}

// writes sends writes of the old host, of some blocks. Answers are not waited for.
func (b *battle) writes() {
	b.old.Helper()
	q := b.host.queues[0]
	if b.gone {
		return
	}
	for n := range 1 + b.random.IntN(4) {
		block := b.random.Uint64N(fencedBlocks)
		if n > 0 && b.random.IntN(8) == 0 { // a frozen ext4 without a journal zeroes all the same
			_ = q.say(b.about(fabrics.OpWriteZeroes, block, fabrics.Data{}).append(nil, 1000))
		} else {
			_ = q.say(b.about(fabrics.OpWrite, block, b.old.keyed(b.at+block<<12, 4096)).append(nil, 1000))
		}
	}
}

// about returns a command for a block of 4096 bytes.
func (b *battle) about(opcode uint8, block uint64, data fabrics.Data) *message {
	return blocks(opcode, block*uint64(b.per), b.per, data)
}

// takes makes the old host the holder, and both hosts registrants.
func (b *battle) takes() {
	b.near.starts()
	b.old.next = b.next
	b.host = b.old.comesBack(long)
	one := b.host.queues[0]
	one.succeeds(reserves(fabrics.OpReservationRegister, registersAnew, 0, keyOne))
	b.two.succeeds(reserves(fabrics.OpReservationRegister, registersAnew, 0, keyTwo))
	b.two.succeeds(reserves(fabrics.OpReservationRelease, clearsAll, keyTwo))
	one.succeeds(reserves(fabrics.OpReservationRegister, registersAnew, 0, keyOne))
	b.two.succeeds(reserves(fabrics.OpReservationRegister, registersAnew, 0, keyTwo))
	one.succeeds(reserves(fabrics.OpReservationAcquire, writeExclusive, keyOne, 0))
}

// ends returns a way in which the old host's part ends, each in turn.
func (b *battle) ends() (name string, do func()) {
	host, near := b.host, b.near
	all := []struct {
		name string
		do   func()
	}{
		{"kill -9", func() { near.signals(syscall.SIGKILL) }},
		{"SIGTERM", func() { near.signals(syscall.SIGTERM) }},
		{"stop", func() { b.asked = near.stops() }},
		{"SIGSTOP", func() { b.stopped = true; b.check(syscall.Kill(-near.group, syscall.SIGSTOP)) }},
		{"the host disconnects", func() { b.gone = true; host.queues[0].close(); host.admin.close() }},
		{"the host's queue ends", func() { b.gone = true; host.queues[0].close() }},
		{"the controller is reset", func() { _ = host.admin.say(disable.append(nil, 7)) }},
		{"nothing", func() {}},
	}
	one := all[(b.count-1)%len(all)]
	return one.name, one.do
}

// schedule is one schedule.
func (b *battle) schedule() {
	b.count++
	b.takes()
	b.quiet("before the hosts write")
	b.data(b.old, "old host")
	way, end := b.ends()
	hears, hung := false, false
	var then []byte
	look := func() {
		if b.two.poll(); !hears && len(b.two.heard) > 0 {
			hears, hung, then = true, b.frozen != nil, b.content()
		}
	}
	steps := []func(){b.writes, end, func() {
		b.must(b.two.say(reserves(fabrics.OpReservationAcquire, preemptsAll, keyTwo, keyOne).append(nil, 2000)))
	}}
	if b.random.IntN(3) == 0 {
		steps = append(steps, b.mend)
	}
	b.random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	if b.random.IntN(2) == 0 {
		b.writes()
	}
	b.hangs()
	defer b.mend()
	b.writes()
	if b.random.IntN(4) > 0 { // else they may or may not have come to the disk
		testenv.Wait(b, waitLimit, "writes to be at the disk", b.busy)
	}
	for _, step := range steps {
		step()
		for end := time.Now().Add(time.Duration(b.random.IntN(30)) * time.Millisecond); time.Now().Before(end); look() {
		}
	}
	for end := time.Now().Add(time.Duration(b.random.IntN(400)) * time.Millisecond); !hears && time.Now().Before(end); look() { // a killed process takes its time
	}
	last := []func(){b.goesOn, b.mend}
	b.random.Shuffle(len(last), func(i, j int) { last[i], last[j] = last[j], last[i] })
	for _, step := range last {
		step()
	}
	testenv.Wait(b, waitLimit, "the preemption to be complete", func() bool { look(); return hears })
	if c := b.two.heard[0]; c.ID != 2000 || c.Status != fabrics.Success {
		b.Fatalf("the preemption: %+v", c)
	}
	b.two.heard = nil
	b.Logf("schedule %d: %s, the preemption was complete while the disk hung: %v", b.count, way, hung)
	if !hung {
		b.waited++
	}
	b.last = then
	b.quiet("after the disk went on")
	b.over()
	b.quiet("after the end of the old host")
	b.data(b.new, "new host")
	for block := range uint64(fencedBlocks) {
		if b.random.IntN(2) == 0 {
			b.two.succeeds(b.about(fabrics.OpWrite, block, b.new.keyed(b.at+block<<12, 4096)))
		}
	}
	b.last = b.content()
}

// goesOn lets a daemon that is stopped go on, or kills it.
func (b *battle) goesOn() {
	switch {
	case !b.stopped:
	case b.random.IntN(2) == 0:
		b.near.signals(syscall.SIGKILL)
	default:
		b.check(syscall.Kill(-b.near.group, syscall.SIGCONT))
	}
	b.stopped = false
}

// over ends what the schedule has left of the old host and its daemon, which may begin anew.
func (b *battle) over() {
	go b.host.admin.close()
	go b.host.queues[0].close()
	stopped := b.asked != nil
	b.awaits(b.asked)
	if b.near.end != nil && (stopped || b.random.IntN(3) == 0) {
		b.near.signals(syscall.SIGTERM)
	}
	b.awaits(b.near.ending)
	b.asked, b.near.ending, b.gone = nil, nil, false
}

// awaits waits until a channel is closed; nil: there is nothing to wait for.
func (b *battle) awaits(end chan struct{}) {
	b.Helper()
	if end == nil {
		return
	}
	select {
	case <-end:
	case <-time.After(waitLimit):
		b.Fatal("the daemon has not ended")
	}
}
