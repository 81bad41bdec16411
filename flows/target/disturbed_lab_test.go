//go:build lab && verbs && cgo

package target

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// disturbed has things happen to the kernel's initiator while it writes and reads: what blktests does to a controller over RDMA
// (its group nvme). Unless the controller is taken away, whoever writes notices nothing but a pause.
func (r *rig) disturbed() {
	t := r.T
	m := labenv.Map(t, 64<<20)
	disk := r.opened(m)
	config := Config{Seats: 12, Queues: 4, Depth: 64, Capsule: 4096, Subsystems: []Subsystem{{NQN: nqn, Hosts: []string{hostNQN}, Namespaces: []Namespace{{ID: 1, Disk: disk, UUID: [16]byte{1: 9, 15: 1}}}}}}
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
		testenv.Wait(d.T, patience, "the host to be gone", func() bool { s := d.v.server.Stats(); return s.Hosts == 0 && s.Queues == 0 })
		d.v.rest()
	})
}

// disturbance is a connected initiator that is busy.
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

// set writes an attribute of the controller's.
func (d *disturbance) set(attribute, value string) {
	d.Helper()
	d.must(os.WriteFile(filepath.Join("/sys/class/nvme", d.initiator.name, attribute), []byte(value), 0))
}

// live waits until the controller is.
func (d *disturbance) live() {
	d.Helper()
	testenv.Wait(d.T, patience, "the controller to be live", func() bool {
		state, err := os.ReadFile(filepath.Join("/sys/class/nvme", d.initiator.name, "state"))
		return err == nil && strings.TrimSpace(string(state)) == "live"
	})
}

// end has the server end a queue of the host's.
func (d *disturbance) end(queue uint16) {
	d.Helper()
	found := false
	d.check(d.v.do(func() error {
		for i := range d.v.server.seats {
			if p := &d.v.server.seats[i]; p.state == seatOpen && p.id == queue {
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

// denied: hosts that may not come, and subsystems that are not, are refused, and nothing is left of who asked.
func (d *disturbance) denied() {
	const other = "4b1dbb4e-6f4b-4b0c-9a0c-2f1c8b6f0a02"
	before := d.v.server.Stats()
	for _, more := range []string{",hostnqn=nqn.2014-08.org.nvmexpress:uuid:" + other + ",hostid=" + other, ",nqn=nqn.2026-01.com.example:none"} {
		if _, err := d.tryConnect(more); err == nil {
			d.Errorf("it was let in with %s", more)
		}
	}
	testenv.Wait(d.T, patience, "both to be gone", func() bool { return d.v.server.Stats().Queues == before.Queues })
	if after := d.v.server.Stats(); after.Refused != before.Refused+2 || after.Hosts != before.Hosts {
		d.Errorf("before %+v, after %+v", before, after)
	}
}

// fails: the disk's errors are the writer's, and the next write goes through once it is mended.
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

// busy writes blocks and reads them again, one after the other.
type busy struct {
	path   string
	done   atomic.Uint64 // rounds
	result chan error
}

// keepBusy begins it, until it fails.
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

func (b *busy) rounds(f *os.File) error {
	memory, err := unix.Mmap(-1, 0, 2*busySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer unix.Munmap(memory)
	out, in := memory[:busySize], memory[busySize:]
	for n := uint64(0); ; n++ {
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

// goesOn waits for some rounds more.
func (b *busy) goesOn(r *rig) {
	r.Helper()
	until := b.done.Load() + 10
	testenv.Wait(r.T, 2*patience, "reads and writes to go on", func() bool {
		select {
		case err := <-b.result:
			r.Fatalf("it was disturbed: %v", err)
		default:
		}
		return b.done.Load() >= until
	})
}

// during does f while there are reads and writes, which go on behind it.
func (b *busy) during(r *rig, f func()) {
	r.Helper()
	b.goesOn(r)
	f()
	b.goesOn(r)
}

// await waits for the end.
func (b *busy) await(r *rig) error {
	r.Helper()
	select {
	case err := <-b.result:
		return err
	case <-time.After(2 * patience):
		r.Fatal("reads and writes have no end")
	}
	return nil
}
