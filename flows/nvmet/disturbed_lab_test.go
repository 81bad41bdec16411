//go:build verbs && cgo

package nvmet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// disturbed disturbs the kernel's initiator while it writes and reads, as the group nvme of
// blktests disturbs a controller over RDMA. A program that writes notices only a pause, unless the
// controller is removed.
func (r *rig) disturbed() {
	t := r.T
	m := labenv.Map(t, 64<<20)
	disk, other := r.opened(m), r.disk(16<<20)
	config := Config{Sessions: 12, Queues: 4, Depth: 64, Capsule: 4096, Subsystems: []Subsystem{{NQN: nqn, Hosts: []string{hostNQN}, Namespaces: []Namespace{{ID: 1, Disk: disk, UUID: [16]byte{1: 9, 15: 1}},
		{ID: 2, Disk: other, UUID: [16]byte{1: 9, 15: 2}}}}}}
	v := r.serve(config)
	i := r.connect(",reconnect_delay=1,ctrl_loss_tmo=120,nr_io_queues=2")
	d := &disturbance{rig: r, v: v, initiator: i}
	d.busy = r.keepBusy(i.path(1))
	d.part(t, "denied", d.denied)
	d.part(t, "reset", func() {
		for range 3 {
			d.busy.during(d.rig, func() { d.set("reset_controller", "1") })
			d.live()
		}
	})
	d.part(t, "an I/O queue ends", func() { d.busy.during(d.rig, func() { d.end(1) }); d.live() })
	d.part(t, "the admin queue ends", func() { d.busy.during(d.rig, func() { d.end(0) }); d.live() })
	d.part(t, "the disk hangs", func() { d.hangs(m) })
	d.part(t, "the disk fails", func() { d.fails(m) })
	d.part(t, "fewer queues", func() {
		before := v.server.Stats()
		d.busy.during(d.rig, func() {
			v.stop()
			config.Queues = 1
			d.v = r.serve(config)
		})
		d.live()
		if before.Queues != 3 || d.v.server.Stats().Queues != 2 {
			d.Errorf("%d queues, then %d", before.Queues, d.v.server.Stats().Queues)
		}
	})
	d.part(t, "removed", func() {
		i.disconnect()
		if err := d.busy.await(d.rig); err == nil {
			d.Error("writing goes on without a controller")
		}
		testenv.Wait(d.T, waitLimit, "the host to be gone", func() bool { s := d.v.server.Stats(); return s.Hosts == 0 && s.Queues == 0 })
		d.v.rest()
	})
}

// disturbance is a connected initiator with reads and writes in progress.
type disturbance struct {
	*rig
	v         *served
	initiator *initiator
	busy      *busy
}

func (d *disturbance) part(t *testing.T, name string, f func()) {
	t.Run(name, func(t *testing.T) {
		whole := d.rig
		d.rig = whole.with(t)
		defer func() { d.rig = whole }()
		f()
	})
}

// set writes an attribute of the controller.
func (d *disturbance) set(attribute, value string) {
	d.Helper()
	d.must(os.WriteFile(filepath.Join("/sys/class/nvme", d.initiator.name, attribute), []byte(value), 0))
}

// live waits until the controller is live.
func (d *disturbance) live() {
	d.Helper()
	testenv.Wait(d.T, waitLimit, "the controller to be live", func() bool { return d.initiator.state() == "live" })
}

// state returns the kernel's state of the controller.
func (i *initiator) state() string {
	state, _ := os.ReadFile(filepath.Join("/sys/class/nvme", i.name, "state"))
	return strings.TrimSpace(string(state))
}

// end makes the server end a queue of the host.
func (d *disturbance) end(queue uint16) {
	d.Helper()
	found := false
	d.check(d.v.do(func() error {
		for i := range d.v.server.sessions {
			if p := &d.v.server.sessions[i]; p.state == sessionOpen && p.id == queue {
				found = true
				d.v.server.fail(p, errors.New("the test wants it"))
			}
		}
		return nil
	}))
	if !found {
		d.Errorf("there is no queue %d", queue)
	}
}

// denied: the server refuses a host that is not permitted and a subsystem that does not exist, and
// keeps no queue of theirs.
func (d *disturbance) denied() {
	const other = "4b1dbb4e-6f4b-4b0c-9a0c-2f1c8b6f0a02"
	before := d.v.server.Stats()
	for n, more := range []string{",hostnqn=nqn.2014-08.org.nvmexpress:uuid:" + other + ",hostid=" + other, ",nqn=nqn.2026-01.com.example:none"} {
		_, err := d.tryConnect(more)
		if err == nil {
			d.Errorf("it was let in with %s", more)
		}
		if refused := d.v.server.Stats().Refused - before.Refused; refused != uint64(n+1) {
			d.Errorf("the server has refused %d, not %d, after: %v", refused, n+1, err)
		}
	}
	testenv.Wait(d.T, waitLimit, "both to be gone", func() bool { return d.v.server.Stats().Queues == before.Queues })
	if after := d.v.server.Stats(); after.Hosts != before.Hosts {
		d.Errorf("before %+v, after %+v", before, after)
	}
}

// hangs: while a disk does not answer, the initiator gives up and reconnects more than once. The
// other namespace continues, and a new host can connect. When the disk answers again, its waiting
// commands continue.
func (d *disturbance) hangs(m *labenv.Mapped) {
	timeouts, err := filepath.Glob("/sys/class/nvme/" + d.initiator.name + "/nvme*n*/queue/io_timeout")
	d.must(err)
	if len(timeouts) != 2 {
		d.Fatalf("of two namespaces there are %q", timeouts)
	}
	for _, file := range timeouts {
		d.must(os.WriteFile(file, []byte("4000"), 0))
		d.Cleanup(func() { d.check(os.WriteFile(file, []byte("30000"), 0)) })
	}
	other := d.keepBusy(d.initiator.path(2))
	d.busy.goesOn(d.rig)
	before := d.v.server.Stats()
	m.Hang(d.T)
	mended := false
	defer func() {
		if !mended {
			m.Mend(d.T)
		}
	}()
	for range 2 {
		was := d.controller()
		testenv.Wait(d.T, waitLimit, "the initiator to give up, and connect again", func() bool { now := d.controller(); return now != 0 && now != was })
		d.live()
		other.goesOn(d.rig)
	}
	d.discover()
	done := d.busy.done.Load()
	m.Mend(d.T)
	mended = true
	d.busy.goesOn(d.rig)
	other.goesOn(d.rig)
	other.stop(d.rig)
	after := d.v.server.Stats()
	d.Logf("%d rounds before; %d commands were abandoned, %d failed", done, after.Abandoned-before.Abandoned, after.Failed-before.Failed)
	if after.Failed != before.Failed || after.Disk.InFlight > 2 {
		d.Errorf("before %+v, after %+v", before, after)
	}
}

// controller returns the number of the host's controller; 0: there is none.
func (d *disturbance) controller() uint16 {
	for _, h := range d.v.server.HostStats() {
		if h.Subsystem == nqn {
			return h.Controller
		}
	}
	return 0
}

// fails: a program that writes gets the disk's errors. When the disk is repaired, the next write
// succeeds.
func (d *disturbance) fails(m *labenv.Mapped) {
	m.Fail(d.T)
	err := d.busy.await(d.rig)
	m.Mend(d.T)
	if !errors.Is(err, unix.EIO) && !errors.Is(err, unix.ENODATA) {
		d.Errorf("a disk that fails gives %v", err)
	}
	if d.v.server.Stats().Failed == 0 {
		d.Error("no failure was counted")
	}
	d.busy = d.keepBusy(d.busy.path)
}

// busy writes blocks and reads them back, one after the other.
type busy struct {
	path   string
	done   atomic.Uint64 // rounds
	pause  sync.Mutex    // held to suspend the rounds
	over   bool          // no further rounds; guarded by pause
	result chan error
}

// keepBusy starts the reads and writes. They continue until one fails.
func (r *rig) keepBusy(path string) *busy {
	r.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	r.must(err)
	b := &busy{path: path, result: make(chan error, 1)}
	go func() {
		defer f.Close()
		b.result <- b.rounds(f)
	}()
	return b
}

const busySize = 16 << 10

// turn waits while the rounds are suspended, and reports whether they are over.
func (b *busy) turn() (over bool) {
	b.pause.Lock()
	defer b.pause.Unlock()
	return b.over
}

// stop ends the reads and writes.
func (b *busy) stop(r *rig) {
	r.Helper()
	b.pause.Lock()
	b.over = true
	b.pause.Unlock()
	r.check(b.await(r))
}

func (b *busy) rounds(f *os.File) error {
	memory, err := unix.Mmap(-1, 0, 2*busySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer unix.Munmap(memory)
	out, in := memory[:busySize], memory[busySize:]
	for n := uint64(0); ; n++ {
		if b.turn() {
			return nil
		}
		for i := range out {
			out[i] = byte(n*31 + uint64(i)>>9)
		}
		at := int64(n % 64 * busySize)
		if _, err := f.WriteAt(out, at); err != nil {
			return err
		}
		if _, err := f.ReadAt(in, at); err != nil {
			return err
		}
		if !bytes.Equal(in, out) {
			return fmt.Errorf("round %d: what was read at %d is not what was written", n, at)
		}
		b.done.Add(1)
	}
}

// goesOn waits for ten more rounds.
func (b *busy) goesOn(r *rig) {
	r.Helper()
	until := b.done.Load() + 10
	testenv.Wait(r.T, 2*waitLimit, "reads and writes to go on", func() bool {
		select {
		case err := <-b.result:
			r.Fatalf("it was disturbed: %v", err)
		default:
		}
		return b.done.Load() >= until
	})
}

// during calls f during reads and writes. They must continue afterwards.
func (b *busy) during(r *rig, f func()) {
	r.Helper()
	b.goesOn(r)
	f()
	b.goesOn(r)
}

// await waits for the end of the reads and writes.
func (b *busy) await(r *rig) error {
	r.Helper()
	select {
	case err := <-b.result:
		return err
	case <-time.After(2 * waitLimit):
		r.Fatal("reads and writes have no end")
	}
	return nil
}
