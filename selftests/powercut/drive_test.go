package powercut

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// packetsPerSecond, with at most burst packets at once, is a rate that the emulated machine
// receives without loss.
const (
	packetsPerSecond = 1500
	burst            = 300
)

// TestDrive: in the guest, one flow after the other writes to the recorded disk, and the driver
// marks on the same disk what each flow calls durable.
func TestDrive(t *testing.T) {
	labenv.Guest(t)
	testenv.Root(t)
	span, err := time.ParseDuration(os.Getenv("UNIFIEDD_SPAN"))
	testenv.Must(t, err)
	d := &driver{
		t: t, block: aligned(t, markerLen),
		pair: testenv.NewPair(t, testenv.PairOptions{NoAddresses: true}), disk: recorded(t), dir: t.TempDir(),
		span: span, program: filepath.Join(os.Getenv("UNIFIEDD_RECORD"), "unifiedd"),
	}
	d.markers = d.open(t, d.disk)
	captures, logs, targets := chosen(os.Getenv("UNIFIEDD_LONG") != "")
	for _, f := range slices.Concat(captures, logs, targets) {
		d.turnTo(t, f)
		t.Run(f.name(), func(t *testing.T) {
			switch {
			case f.isLog():
				d.keepLog(t, f)
			case f.isTarget():
				d.serve(t, f)
			default:
				d.capture(t, f)
			}
		})
	}
	d.unmount(t)
	if err := d.markers.Sync(); err != nil { // the emulator updates the record's number of entries at a flush
		t.Fatal(err)
	}
}

// turnTo prepares a flow and marks its beginning. It mounts the file system for a flow with files,
// and unmounts it for a flow on a device.
func (d *driver) turnTo(t *testing.T, f flow) {
	t.Helper()
	if f.onDevice() {
		d.unmount(t)
	} else if !d.mounted {
		testenv.Must(t, unix.Mount(d.disk+"1", d.dir, "ext4", 0, ""))
		d.mounted = true
	}
	if f.onDevice() && f.isLog() {
		d.wipe(t, f)
	}
	d.mark(t, Marker{Flow: uint32(f.number)})
}

func (d *driver) unmount(t *testing.T) {
	t.Helper()
	if !d.mounted {
		return
	}
	testenv.Must(t, unix.Unmount(d.dir, 0))
	d.mounted = false
}

// wipe removes the ring from a flow's device: the superblock and its copy. The slots keep the data
// of an earlier capture.
func (d *driver) wipe(t *testing.T, f flow) {
	t.Helper()
	device, zeros, p := d.open(t, d.device(f)), aligned(t, mib), parts[f.part]
	for _, at := range []int64{0, p.Length - mib} {
		if _, err := device.WriteAt(zeros, at); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Must(t, device.Sync())
}

// device returns the partition of a flow.
func (d *driver) device(f flow) string { return fmt.Sprint(d.disk, f.part+1) }

// aligned returns zeroed memory for direct I/O.
func aligned(t *testing.T, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	testenv.Must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

// recorded returns the disk whose writes are recorded.
func recorded(t *testing.T) string {
	t.Helper()
	files, _ := filepath.Glob("/sys/block/vd*/serial")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == wire.RecordedSerial {
			return "/dev/" + filepath.Base(filepath.Dir(file))
		}
	}
	t.Fatalf("no disk of %q is recorded", files)
	return ""
}

// driver runs the flows and writes markers.
type driver struct {
	t                  *testing.T // the test of all flows
	pair               *testenv.Pair
	rdma               *testenv.Pair // for logs; nil until the first log begins
	disk, dir, program string
	span               time.Duration
	mounted            bool
	markers            *os.File
	block              []byte // a marker, aligned for direct I/O
	number             uint64 // of the next marker
}

// open opens the disk for writes of single sectors that bypass the kernel's caches.
func (d *driver) open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|unix.O_DIRECT, 0)
	testenv.Must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// capture runs one flow under traffic. It sends span times packetsPerSecond packets, however slow
// the machine is.
func (d *driver) capture(t *testing.T, f flow) {
	run := launch(t, d.program, &d.pair.B, "2MiB", f.yaml(d.pair.B.Ifname, d.dir, d.device(f)))
	run.Running(t)
	sender := testenv.NewSender(t, &d.pair.A)
	begin, sent, durable := time.Now(), uint64(0), uint64(0)
	all := uint64(d.span.Seconds() * packetsPerSecond)
	run.Until(t, "everything to be durable", func(s *status.Daemon) bool {
		if n := s.Flows[0].Durable.Packets; n > durable {
			durable = n
			d.mark(t, Marker{Flow: uint32(f.number), Packets: durable})
		}
		if sent < all {
			sent = d.send(t, f, sender, sent, min(uint64(time.Since(begin).Seconds()*packetsPerSecond), all, sent+burst))
			return false
		}
		for why, n := range s.Flows[0].Dropped {
			if n > 0 {
				t.Fatalf("%d packets were dropped (%s): their numbers would be missing", n, why)
			}
		}
		return durable == sent
	})
	run.Terminate(t)
	t.Logf("%s onto part %d: %d packets", f.layout, f.part, sent)
}

// send sends the packets that are due.
func (d *driver) send(t *testing.T, f flow, s *testenv.Sender, from, due uint64) uint64 {
	t.Helper()
	for ; from < due; from++ {
		if ok, err := s.Send(f.packet(d.pair, from)); !ok || err != nil {
			t.Fatalf("send packet %d: %v", from, err)
		}
	}
	return from
}

// keepLog runs a log while clients append to it. It marks what the clients' acknowledgements and
// the daemon's status call durable.
func (d *driver) keepLog(t *testing.T, f flow) {
	if d.rdma == nil {
		d.rdma = testenv.NewPair(d.t, testenv.PairOptions{})
	}
	run := launch(t, d.program, &d.rdma.B, "2MiB", f.logYAML(&d.rdma.B, d.dir, d.device(f)))
	run.Running(t)
	clients := appendTo(t, &d.rdma.A, f.address(&d.rdma.B), f.name(), f.clients(), 0)
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	safe, told := uint64(0), uint64(0)
	var over <-chan time.Time // set by the first receipt
	for open := true; open; {
		var r receipt
		select {
		case r, open = <-clients.receipts:
			if told++; told == 1 {
				over = time.After(d.span)
			}
			d.markReceipts(t, f, clients.newest(r))
		case <-over:
			clients.enough()
		case <-look.C:
			if s, err := run.Status(); err == nil && len(s.Flows) == 1 && s.Flows[0].Log.Durable > safe {
				safe = s.Flows[0].Log.Durable
				d.mark(t, Marker{Flow: uint32(f.number), Packets: safe})
			}
		}
	}
	clients.await(t)
	run.Terminate(t)
	t.Logf("%s onto part %d, acknowledged when %s: %d messages, %d receipts", f.layout, f.part, f.acknowledge, clients.last, told)
}

// newest returns the last receipt of each client among first and the waiting ones. Receipts arrive
// faster than a marker for each could be written.
func (a *appending) newest(first receipt) map[uint32]receipt {
	all := map[uint32]receipt{}
	for r, open := first, true; ; {
		if r.Client != 0 {
			all[r.Client] = r
		}
		select {
		case r, open = <-a.receipts:
			if !open {
				return all
			}
		default:
			return all
		}
	}
}

// markReceipts writes markers for acknowledgements, if the log acknowledges durable messages.
func (d *driver) markReceipts(t *testing.T, f flow, all map[uint32]receipt) {
	t.Helper()
	for _, r := range all {
		if f.acknowledge == durable {
			d.mark(t, Marker{Flow: uint32(f.number), Client: r.Client, Packets: r.Number, Position: r.position})
		}
	}
}

// mark writes a marker for the progress of a flow.
func (d *driver) mark(t *testing.T, m Marker) {
	t.Helper()
	m.Number = d.number
	m.Put(d.block)
	if _, err := d.markers.WriteAt(d.block, m.Place()); err != nil {
		t.Fatal(err)
	}
	d.number++
}
