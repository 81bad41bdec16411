//go:build recorded

package powercut

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// packetsPerSecond is what the emulated machine takes without loss.
const packetsPerSecond = 1500

// TestDrive runs in the guest: one flow after the other captures onto the disk that is
// recorded, and what it calls durable is written down there.
func TestDrive(t *testing.T) {
	testenv.Root(t)
	span, err := time.ParseDuration(os.Getenv("UNIFIEDD_SPAN"))
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{
		pair: testenv.NewPair(t, testenv.PairOptions{NoAddresses: true}), disk: recorded(t), dir: t.TempDir(),
		span: span, program: filepath.Join(os.Getenv("UNIFIEDD_RECORD"), "unifiedd"),
	}
	d.markers = d.open(t, d.disk)
	if err := unix.Mount(d.disk+"1", d.dir, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	for _, f := range chosen(os.Getenv("UNIFIEDD_LONG") != "") {
		if f.part == 1 {
			if err := unix.Unmount(d.dir, 0); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(f.name(), func(t *testing.T) { d.capture(t, f) })
	}
}

// recorded is the disk whose writes are recorded.
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

// driver is what makes the record.
type driver struct {
	pair               *testenv.Pair
	disk, dir, program string
	span               time.Duration
	markers            *os.File
	number             uint64 // of the next marker
}

// open opens the disk for single sectors, past every cache of the kernel's.
func (d *driver) open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// capture runs one flow under traffic.
func (d *driver) capture(t *testing.T, f flow) {
	run := launch(t, d.program, &d.pair.B, "2MiB", f.yaml(d.pair.B.Ifname, d.dir, fmt.Sprint(d.disk, f.part+1)))
	run.Running(t)
	sender := testenv.NewSender(t, &d.pair.A)
	begin, sent, durable := time.Now(), uint64(0), uint64(0)
	run.Until(t, "everything to be durable", func(s *flows.Status) bool {
		if n := s.Flows[0].Durable.Packets; n > durable {
			durable = n
			d.mark(t, f, durable)
		}
		if time.Since(begin) < d.span {
			sent = d.send(t, f, sender, sent, uint64(time.Since(begin).Seconds()*packetsPerSecond))
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

// send sends what is due.
func (d *driver) send(t *testing.T, f flow, s *testenv.Sender, from, due uint64) uint64 {
	t.Helper()
	for ; from < due; from++ {
		if ok, err := s.Send(f.packet(d.pair, from)); !ok || err != nil {
			t.Fatalf("send packet %d: %v", from, err)
		}
	}
	return from
}

// mark writes down what is durable.
func (d *driver) mark(t *testing.T, f flow, packets uint64) {
	t.Helper()
	m := Marker{Flow: uint32(f.number), Number: d.number, Packets: packets}
	block, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(block) }()
	m.Put(block[:MarkerLen])
	if _, err := d.markers.WriteAt(block[:MarkerLen], m.Place()); err != nil {
		t.Fatal(err)
	}
	d.number++
}
