package flows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/sink/disk"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
	"github.com/unifiedd/unifiedd/umem"
)

// witness is a layout that passes everything on. It notes the addresses where packets landed and the
// addresses that the disk writes from. As late as it can, it writes the packet's number into the packet where
// it landed. If the file has the number, the packet came from there.
type witness struct {
	layout.Layout
	region *umem.Region
	write  bool

	open    []place // of the open batch
	landed  []place // of packets, in the order of the file
	pieces  []piece // of messages, in the order of the file
	message []piece // of the sealed batch
}

// place is where a packet landed.
type place struct {
	addr   uint64 // of its first byte
	length uint32
	frames int
}

// piece is one part of what the disk writes.
type piece struct {
	umem.Frame
	offset uint64 // in the file
}

// numberAt is where in the packet the witness writes.
const numberAt = 60

func (w *witness) Add(source uint32, fs []umem.Frame) int {
	for i := 0; i < len(fs); {
		n, length := umem.PacketLen(fs[i:])
		if n == 0 || w.Layout.Add(source, fs[i:i+n]) == 0 {
			return i
		}
		w.open = append(w.open, place{fs[i].Addr, length, n})
		i += n
	}
	return len(fs)
}

func (w *witness) Seal(b pcapng.Batch) []umem.Frame {
	for i, p := range w.open {
		if w.write && p.frames == 1 && p.length >= numberAt+8 {
			binary.BigEndian.PutUint64(w.region.At(p.addr+numberAt, 8), uint64(len(w.landed)+i))
		}
	}
	message := w.Layout.Seal(b)
	w.message = w.message[:0]
	offset := b.Offset
	for _, f := range message {
		w.message = append(w.message, piece{f, offset})
		offset += uint64(f.Len)
	}
	return message
}

func (w *witness) Reset() {
	w.landed, w.pieces, w.open = append(w.landed, w.open...), append(w.pieces, w.message...), w.open[:0]
	w.Layout.Reset()
}

// observed puts a witness into a running flow that has had no packets yet.
func observed(t *testing.T, f *Flow) *witness {
	t.Helper()
	w := &witness{region: f.region}
	wrapLayout(t, f, func(l layout.Layout) layout.Layout { w.Layout = l; return w })
	return w
}

// wrapLayout replaces the layout of a running flow to a disk.
func wrapLayout(t *testing.T, f *Flow, wrap func(layout.Layout) layout.Layout) {
	t.Helper()
	sink := f.running().Flow.(*pipeline.Pipeline).Sink().(*disk.Writer)
	testenv.Must(t, f.worker.Do(func() error { sink.WrapLayout(wrap); return nil }))
}

// TestSlotIsWrittenFromWhereItLanded shows by address that no packet of one frame
// is copied on its way from the network to the disk.
func TestSlotIsWrittenFromWhereItLanded(t *testing.T) {
	l := newLab(t, testenv.PairOptions{MTU: 9000, NoAddresses: true})
	f := l.start(t, l.defaults("slot"), Options{}).Flows()[0]
	w := observed(t, f)
	w.write = true
	var frames [][]byte
	for size := 512; size <= min(3556, l.MTU+14); size++ { // 3556 fill a frame
		frames = append(frames, testenv.UDP(&l.A, &l.B, 9, uint64(size), size))
	}
	s := l.captured(t, f, frames)
	for reason, n := range s.CopiedBytes {
		if n != 0 {
			t.Errorf("copied %d bytes: %s", n, reason)
		}
	}
	if len(w.landed) != len(frames) {
		t.Fatalf("%d packets landed, %d were sent", len(w.landed), len(frames))
	}
	all := captures.Records(t, l.files(t)...)
	samePackets(t, "the file", captures.Contents(all), stampedWith(frames))
	w.compare(t, l.files(t)[0])
	blocksOf(t, l.files(t)...)
}

// stampedWith returns the packets with the numbers that the witness writes.
func stampedWith(frames [][]byte) (out [][]byte) {
	for i, f := range frames {
		f = bytes.Clone(f)
		binary.BigEndian.PutUint64(f[numberAt:], uint64(i))
		out = append(out, f)
	}
	return out
}

// compare checks that the disk wrote each packet from where it had landed, and that the file has the packet
// at the offset of that write.
func (w *witness) compare(t *testing.T, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	testenv.Must(t, err)
	for i, p := range w.passed(t) {
		here := raw[p.offset+pcapng.PacketHeaderLen:]
		if n := binary.BigEndian.Uint64(here[numberAt:]); n != uint64(i) {
			t.Fatalf("packet %d, written from %#x, is number %d in the file", i, p.Addr, n)
		}
	}
}

// passed returns for each packet the piece that begins with it, where it had landed.
func (w *witness) passed(t *testing.T) (pieces []piece) {
	t.Helper()
	at := 0
	for i, p := range w.landed {
		for at < len(w.pieces) && w.pieces[at].Addr != p.addr-pcapng.PacketHeaderLen {
			at++
		}
		if at == len(w.pieces) {
			t.Fatalf("packet %d landed at %#x, and nothing from there was given to the disk", i, p.addr)
		}
		pieces = append(pieces, w.pieces[at])
	}
	return pieces
}

// captured sends frames, waits until they are written, and stops the flow.
func (l *lab) captured(t *testing.T, f *Flow, frames [][]byte) status.Flow {
	t.Helper()
	l.send(t, f, frames)
	s := await(t, f, "all packets written or lost", func(s status.Flow) bool { return s.Written.Packets+lost(s) >= uint64(len(frames)) })
	if lost(s) > 0 {
		t.Errorf("packets were lost: %v, %d stalls", s.Dropped, s.Stalls)
	}
	testenv.Must(t, f.Stop())
	return f.Status()
}

// TestCopiesAreCounted: every copied byte is counted once. The packed layout copies every byte, and the slot
// layout copies only packets of several frames.
func TestCopiesAreCounted(t *testing.T) {
	for _, layout := range layouts {
		t.Run(layout, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{MTU: 9000, NoAddresses: true})
			f := l.start(t, l.defaults(layout), Options{}).Flows()[0]
			const short = 200
			long := l.MTU
			frames := append(testenv.Stream(&l.A, &l.B, 9, 0, 300, short), testenv.Stream(&l.A, &l.B, 9, 300, 300, long)...)
			s := l.captured(t, f, frames)
			want := map[string]uint64{"packed": 300 * uint64(short+long), "multi_frame": 0, "tight_frame": 0}
			if layout == "slot" {
				want = map[string]uint64{"packed": 0, "multi_frame": 0, "tight_frame": 0}
				if long > 3556 {
					want["multi_frame"] = 300 * uint64(long)
				}
			}
			if fmt.Sprint(s.CopiedBytes) != fmt.Sprint(want) {
				t.Errorf("copied %v, want %v", s.CopiedBytes, want)
			}
			kernel := s.Bytes
			if granted.zeroCopy {
				kernel = 0
			}
			if s.KernelBytes["disk"] != 0 || s.KernelBytes["xdp"] != kernel {
				t.Errorf("the kernel copied %v of %d", s.KernelBytes, s.Bytes)
			}
			samePackets(t, "the file", captures.Packets(t, l.files(t)...), frames)
		})
	}
}

// TestNoPoisonReachesTheDisk fills the region with a pattern and captures packets of every length. It does so
// with two patterns. The file must not contain the pattern, and its padding must be zero.
func TestNoPoisonReachesTheDisk(t *testing.T) {
	for _, layout := range forms(layouts) {
		for _, poison := range oneOf[byte](t, 0xcc, 0xa7) {
			t.Run(fmt.Sprintf("%s/%#x", layout, poison), func(t *testing.T) {
				l := newLab(t, testenv.PairOptions{MTU: 9000, NoAddresses: true})
				d := l.open(t, l.form(layout), Options{})
				fillRegion(d, poison)
				l.begin(t, d.Start)
				frames := testenv.Frames(testenv.Zoo(&l.A, &l.B, l.MTU))
				if layout == "packet" {
					frames = seen(frames)
					ring := passiveSource(t, d.Flows()[0]).Ring()
					for n := range ring.About {
						copy(ring.Bytes(n)[64:], bytes.Repeat([]byte{poison}, len(ring.Bytes(n)))) // behind the kernel's header of the block
					}
				}
				for i := range 3000 {
					frames = append(frames, testenv.UDP(&l.A, &l.B, 9, uint64(i), 60+(i*1117)%(l.MTU-45)))
				}
				l.captured(t, d.Flows()[0], frames)
				for _, name := range l.files(t) {
					unpoisoned(t, name, poison)
				}
				samePackets(t, "the file", captures.Packets(t, l.files(t)...), frames)
			})
		}
	}
}

func fillRegion(d *Daemon, with byte) {
	data := d.Region().Data()
	data[0] = with
	for n := 1; n < len(data); n *= 2 {
		copy(data[n:], data[:n])
	}
}

// unpoisoned checks that a file has no run of the poison, which no packet here has. It also splits the file
// into blocks, which checks every byte of padding.
func unpoisoned(t *testing.T, name string, poison byte) {
	t.Helper()
	raw, err := os.ReadFile(name)
	testenv.Must(t, err)
	if at := bytes.Index(raw, bytes.Repeat([]byte{poison}, 5)); at >= 0 {
		t.Errorf("%s has poison at offset %d", name, at)
	}
	cutBlocks(t, raw)
}
