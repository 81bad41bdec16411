package oneregion

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// The packets: longer ones do not fit into a frame, and the disk accepts multiples of 512 bytes.
const (
	packets = 64
	length  = 1024
	landing = 540 // of a packet in its frame: umem.PacketHeadroom and the shape's headroom
	inbox   = 512 // of an RDMA message in its frame
)

// TestOneRegion: packets from a card go to the disk and over RDMA from the addresses where they
// landed, and messages from RDMA go to the disk from where they landed.
func TestOneRegion(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "TestFiveFlows has the same devices over one region, and TestCardToDisk and TestWhereItLandedOnVerbs look at addresses")
	testenv.Leaks(t)
	testenv.HugePages(t, 18<<20)
	pair := labenv.Igb(t)
	r := newRig(t)
	card := r.openCard(pair)
	disk := r.openDisk()
	out, in := r.openRDMA()
	r.registered(3)

	zero := labenv.Kernel(t) == labenv.Linux7
	if g := card.Granted(); g.ZeroCopy != zero {
		t.Errorf("zero copy of the card: %v (%s)", g.ZeroCopy, g.WhyNotZeroCopy())
	}
	r.supply(card.Ports()[0], 512)
	r.supply(card.Ports()[1], 512)
	r.supply(in, packets)
	if err := card.Start(); err != nil {
		t.Fatal(err)
	}
	labenv.Carry(t, pair)
	sent := testenv.Stream(&pair.A, &pair.B, 9, 0, packets, length)
	testenv.SendRaw(t, &pair.A, sent, testenv.SendOptions{Rate: 1000})

	// From the card.
	frames := r.receive(packets, card.Ports()[0], card.Ports()[1])
	places := r.places(frames, landing, sent)
	// To the disk, from there.
	frames = r.write(disk, frames, 0)
	r.same("written", frames, places)
	// To the peer, from there.
	frames = r.pass(out, frames)
	r.same("sent", frames, places)
	r.worker.Give(frames)
	// At the peer, and from there to the disk.
	arrived := r.receive(packets, in)
	places = r.places(arrived, inbox, sent)
	arrived = r.write(disk, arrived, packets*length)
	r.same("written by the peer", arrived, places)
	r.worker.Give(arrived)

	onDisk := read(t, labenv.Disk, 2*packets*length)
	for i := range 2 * packets {
		if got := onDisk[i*length:][:length]; !bytes.Equal(got, sent[i%packets]) {
			t.Fatalf("block %d of the disk is not packet %d", i, i%packets)
		}
	}
	if s := disk.Stats(); s.Copied != 0 || s.Writes != 2*packets {
		t.Errorf("the disk: %+v", s)
	}
	if s := out.Stats(); s.Sent != packets || s.BytesSent != packets*length {
		t.Errorf("sent: %+v", s)
	}
	if s := in.Stats(); s.Received != packets || len(s.Failed) != 0 {
		t.Errorf("received: %+v", s)
	}
}

// places compares the received packets with the sent ones, and returns the addresses.
func (r *rig) places(frames []umem.Frame, offset uint64, want [][]byte) (addrs []uint64) {
	r.Helper()
	order(r.region, frames)
	for i, f := range frames {
		if start, _ := r.region.Start(f); f.Addr != start+offset || !bytes.Equal(r.region.Bytes(f), want[i]) {
			r.Fatalf("packet %d landed %d bytes into its frame with %d bytes, or differs", i, f.Addr-start, f.Len)
		}
		addrs = append(addrs, f.Addr)
	}
	return addrs
}

// order sorts frames by the number in their packets, since two queues deliver them in mixed order.
func order(region *umem.Region, frames []umem.Frame) {
	number := func(f umem.Frame) uint64 { n, _ := testenv.Sequence(region.Bytes(f)); return n }
	slices.SortFunc(frames, func(a, b umem.Frame) int { return int(number(a)) - int(number(b)) })
}

// same checks that frames that came back have the addresses that the device was to use.
func (r *rig) same(what string, frames []umem.Frame, want []uint64) {
	r.Helper()
	for i, f := range frames {
		if f.Addr != want[i] || f.Len != length || f.Err() != nil {
			r.Fatalf("%s: frame %d is at %d with %d bytes, want %d: %v", what, i, f.Addr, f.Len, want[i], f.Err())
		}
	}
}

// write writes frames one after the other to the disk, from an offset.
func (r *rig) write(disk disk, frames []umem.Frame, at uint64) []umem.Frame {
	r.Helper()
	for i, f := range frames {
		side := r.region.Side(f)
		side.Target, side.Block = disk.target, at+uint64(i)*length
	}
	back := r.pass(disk, frames)
	slices.SortFunc(back, func(a, b umem.Frame) int { return int(r.region.Side(a).Block) - int(r.region.Side(b).Block) })
	return back
}

// pass sends frames and waits until all return.
func (r *rig) pass(p umem.Port, frames []umem.Frame) []umem.Frame {
	r.Helper()
	return r.turn(len(frames), p.Reap, func() error {
		frames = frames[p.Send(frames):]
		return p.Kick()
	})
}

// receive waits for that many frames.
func (r *rig) receive(n int, ports ...umem.Port) []umem.Frame {
	r.Helper()
	next := 0
	return r.turn(n, func(dst []umem.Frame) int { return ports[next].Recv(dst) }, func() error {
		next = (next + 1) % len(ports)
		return ports[next].Kick()
	})
}

// turn alternates step and take until there are n frames.
func (r *rig) turn(n int, take func([]umem.Frame) int, step func() error) (got []umem.Frame) {
	r.Helper()
	buf := make([]umem.Frame, 64)
	for end := time.Now().Add(30 * time.Second); len(got) < n; {
		if time.Now().After(end) {
			r.Fatalf("%d of %d frames came in 30 s", len(got), n)
		}
		if err := step(); err != nil {
			r.Fatal(err)
		}
		got = append(got, buf[:take(buf)]...)
	}
	return got
}

// read reads the start of a device and bypasses the cache.
func read(t *testing.T, path string, n int) []byte {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	if got, err := f.ReadAt(b, 0); err != nil || got != n {
		t.Fatal(fmt.Errorf("read %s: %d bytes: %w", path, got, err))
	}
	return b
}
