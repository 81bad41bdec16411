package flows

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/unifiedd/unifiedd/flows/source/packet"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// Bits of a packet's flags (draft-ietf-opsawg-pcapng, section 4.3.1).
const (
	flagNotComputed = 1 << 9
	flagValid       = 1 << 10
	flagSegments    = 1 << 11
)

// TestPassiveOffloads: the host sends segments of up to 64 KiB without checksums (TSO), or the kernel merges those
// that arrive (GRO). The file has them as tcpdump has, and says what they are.
func TestPassiveOffloads(t *testing.T) {
	for name, c := range map[string]struct {
		settings string
		merged   pickedDirection // has longer packets than the MTU
	}{
		"TSO": {"tso on gso on tx on sg on gro off", sentFlag},
		"GRO": {"tso off gso off tx on sg on gro on", arrivedFlag},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{})
			for _, e := range []*testenv.End{&l.A, &l.B} {
				e.Run(t, testenv.Tool(t, "ethtool"), append([]string{"-K", e.Ifname}, strings.Fields(c.settings)...)...)
			}
			f := l.start(t, l.passive("", ""), Options{}).Flows()[0]
			dump := startTcpdumpOf(t, &l.B, "inout", 262144)
			l.transfer(t, "2M")
			theirs := dump.rest(t)
			await(t, f, "all that tcpdump has", func(s status.Flow) bool { return s.Written.Packets >= uint64(len(theirs)) })
			stopped(t, f)
			captures.Readable(t, l.files(t)...)
			ours := captures.Packets(t, l.files(t)...)
			samePackets(t, "our file", unordered(ours), unordered(theirs))
			long := 0
			for i, flags := range flagsOf(t, l.files(t)...) {
				if len(ours[i]) > 1514 && flags&3 == uint32(c.merged) {
					long++
				}
				saysOffloads(t, i, ours[i], flags)
			}
			if long == 0 {
				t.Error("no packet is longer than the MTU: the test shows nothing")
			}
		})
	}
}

// pickedDirection is a direction in a packet's flags.
type pickedDirection uint32

const (
	arrivedFlag pickedDirection = 1
	sentFlag    pickedDirection = 2
)

// saysOffloads checks the flags of a packet: segments are flagged if the packet has several, and a checksum that
// is wrong as one that is not computed.
func saysOffloads(t *testing.T, i int, frame []byte, flags uint32) {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	ip, is := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	if _, also := p.Layer(layers.LayerTypeTCP).(*layers.TCP); !is || !also {
		return
	}
	if len(frame) > 1514 && flags&flagSegments == 0 {
		t.Fatalf("packet %d of %d bytes has flags %#x: not said to be several segments", i, len(frame), flags)
	}
	if good := goodChecksum(ip); !good && flags&flagNotComputed == 0 || !good && flags&flagValid != 0 {
		t.Fatalf("packet %d has flags %#x, checksum right: %v", i, flags, good)
	}
}

// TestPassiveLoopback: the file has each packet of the loopback interface once, as tcpdump has.
func TestPassiveLoopback(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	l.B.Run(t, "ip", "link", "set", "lo", "up")
	text := strings.Replace(l.passive(", filter: icmp", ""), "interface: "+l.B.Ifname, "interface: lo", 1)
	f := l.start(t, text, Options{}).Flows()[0]
	l.B.Run(t, "ping", "-c", "4", "-i", "0.01", "-s", "9000", "127.0.0.1")
	await(t, f, "four pings and four answers", func(s status.Flow) bool { return s.Written.Packets >= 8 })
	stopped(t, f)
	if got := captures.Packets(t, l.files(t)...); len(got) != 8 || len(got[0]) != 14+20+8+9000 {
		t.Errorf("%d packets", len(got))
	}
}

// expressionsOf returns the expressions with which the compiler of filters is compared with tcpdump.
func expressionsOf(t *testing.T) (list []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "bpf", "testdata", "expressions.txt"))
	testenv.Must(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		// a socket's program has no loops, which protochain needs
		if line != "" && line[0] != '#' && !strings.Contains(line, "protochain") {
			list = append(list, line)
		}
	}
	return list
}

// usualFilters is how many expressions the usual form of TestPassiveFilters compares.
const usualFilters = 12

// TestPassiveFilters sets one filter after the other on a running flow, and compares what is in the file with
// what tcpdump captures by the same expression at the same end. The long form has all expressions.
func TestPassiveFilters(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	all := expressionsOf(t)
	step := max(1, len(all)/fromEnvironment("UNIFIEDD_FILTERS", usualFilters))
	text := func(filter string) string { return l.passive(fmt.Sprintf(", filter: %q", filter), "") }
	f := l.start(t, text("arp"), Options{}).Flows()[0]
	frames := l.addressed()
	var want [][]byte
	some, tried := 0, 0
	for i := 0; i < len(all); i += step {
		got, ok := l.bothFilter(t, f, text(all[i]), all[i], frames)
		if want = append(want, got...); ok {
			tried++
		}
		if n := len(got); n > 0 && n < len(frames) {
			some++
		}
	}
	stopped(t, f)
	samePackets(t, "our file", captures.Packets(t, l.files(t)...), want)
	t.Logf("%d filters, of which %d took some packets and left others", tried, some)
	if some < tried/4 {
		t.Errorf("only %d of %d filters took some packets and left others: the test shows little", some, tried)
	}
}

// addressed returns packets of all kinds, also with the addresses, ports and tags that expressions name.
func (l *lab) addressed() (frames [][]byte) {
	zoo := seen(testenv.Frames(testenv.Zoo(&l.A, &l.B, l.MTU)))
	for _, f := range zoo {
		f = bytes.ReplaceAll(f, l.A.IP.AsSlice(), []byte{10, 0, 0, 1})
		frames = append(frames, bytes.ReplaceAll(f, l.B.IP.AsSlice(), []byte{192, 168, 1, 2}))
	}
	for i, port := range []uint16{53, 80, 5000, 4789, 6081} {
		frames = append(frames, testenv.UDP(&l.A, &l.B, port, uint64(i), 100+100*i))
	}
	for i, tag := range []byte{5, 6, 7, 42} {
		for _, f := range tagged(&l.A, &l.B, 2) {
			f[15] = tag
			frames = append(frames, f)
		}
		frames = append(frames, bytes.Join([][]byte{frames[i][:12], {0x81, 0, 0, tag}, frames[i][12:]}, nil))
	}
	return append(frames, zoo...)
}

// bothFilter sets a filter, sends packets, and returns those that tcpdump has by the expression. It returns false
// for an expression that tcpdump or the configuration refuses because no packet can match: then tcpdump has none.
func (l *lab) bothFilter(t *testing.T, f *Flow, text, expression string, frames [][]byte) (theirs [][]byte, ok bool) {
	t.Helper()
	if _, err := l.reload(t, text); err != nil {
		none := strings.Contains(err.Error(), "rejects all packets")
		out, refuses := l.B.Command("tcpdump", "-d", "-i", l.B.Ifname, "--", expression).CombinedOutput()
		if !none && refuses == nil {
			t.Errorf("%q: %v, and tcpdump has it: %s", expression, err, out)
		}
		if none && refuses == nil {
			dump := startTcpdumpOf(t, &l.B, "inout", 16384, expression)
			testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{})
			if some := dump.rest(t); len(some) > 0 {
				t.Errorf("%q: %v, and tcpdump has %d packets", expression, err, len(some))
			}
		}
		return nil, false
	}
	dump := startTcpdumpOf(t, &l.B, "inout", 16384, expression)
	before := f.Status()
	testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{})
	s := await(t, f, "what the filter takes", func(s status.Flow) bool { return s.Packets == s.Offered && s.Written.Packets == s.Packets })
	n, size := s.Packets-before.Packets, s.Bytes-before.Bytes
	theirs = dump.stop(t, int(n), int(size))
	if uint64(len(theirs)) != n {
		t.Errorf("%q: the flow has %d packets, and tcpdump %d", expression, n, len(theirs))
	}
	return theirs, true
}

// TestPassiveFanout: four flows of four workers divide the packets of an interface. Each packet is in one file, all
// of a connection in the same, in their order. When one of the flows ends and begins again, it joins the others.
func TestPassiveFanout(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	var workers, flows strings.Builder
	for i := range 4 {
		fmt.Fprintf(&workers, "{name: w%d}, ", i)
		fmt.Fprintf(&flows, "  - {name: part%d, worker: w%[1]d, from: {interface: %s, engine: packet, fanout: all, buffer: 8MiB}, to: {file: %s/part%[1]d, segment: {size: 32MiB}, flush: 50ms, durable: 100ms}}\n", i, l.B.Ifname, l.dir)
	}
	d := l.start(t, fmt.Sprintf("region: {size: 32MiB}\nworkers: [%s]\nflows:\n%s", workers.String(), flows.String()), Options{})
	const connections, each = 64, 100
	var frames [][]byte
	for n := range uint64(each) {
		for c := range uint16(connections) {
			frames = append(frames, testenv.UDP(&l.A, &l.B, 5000+c, n, 300))
		}
	}
	// together returns how many packets the flows have offered and written
	together := func() (offered, written uint64) {
		for _, f := range d.Flows() {
			s := f.Status()
			offered, written = offered+s.Offered, written+s.Written.Packets
		}
		return offered, written
	}
	half := len(frames) / 2
	testenv.SendRaw(t, &l.A, frames[:half], testenv.SendOptions{Rate: 50000})
	testenv.Wait(t, 10*time.Second, "the first half", func() bool { o, w := together(); return o == uint64(half) && w == uint64(half) })
	first := d.Flows()[1].Status()
	testenv.Must(t, d.Flows()[1].Stop())
	l.begin(t, d.Flows()[1].Start)
	testenv.SendRaw(t, &l.A, frames[half:], testenv.SendOptions{Rate: 50000})
	testenv.Wait(t, 10*time.Second, "the second half", func() bool {
		_, w := together()
		return w == uint64(len(frames)) || w == uint64(len(frames))-first.Written.Packets // counters may begin again
	})
	l.fanned(t, d, connections, each)
}

// fanned ends the flows, and checks what each has in its files.
func (l *lab) fanned(t *testing.T, d *Daemon, connections, each int) {
	t.Helper()
	// who of the flows has a connection, until one of them began again and since
	owners, count, has := [2]map[uint16]int{{}, {}}, 0, 0
	for i, f := range d.Flows() {
		if s := f.Status(); s.Fanout != "all" || s.Dropped["buffer_full"] != 0 {
			t.Errorf("flow %d: fanout %q, dropped %v", i, s.Fanout, s.Dropped)
		}
		stopped(t, f)
		files, err := filepath.Glob(fmt.Sprintf("%s/part%d*.pcapng", l.dir, i))
		testenv.Must(t, err)
		captures.Readable(t, files...)
		all, next := captures.Packets(t, files...), map[uint16]uint64{}
		for _, frame := range all {
			n, ok := testenv.Sequence(frame)
			c := binary.BigEndian.Uint16(frame[36:]) // the port that it goes to
			if !ok || !testenv.Intact(frame) {
				t.Fatalf("flow %d has a packet that was not sent", i)
			}
			owner := owners[n/uint64(each/2)]
			if before, there := owner[c]; there && before != i {
				t.Fatalf("connection %d is in flows %d and %d", c, before, i)
			}
			if n < next[c] {
				t.Fatalf("flow %d has packet %d of connection %d behind %d", i, n, c, next[c])
			}
			owner[c], next[c] = i, n+1
		}
		if count += len(all); len(all) > 0 {
			has++
		}
	}
	if count != connections*each || has < 2 {
		t.Errorf("%d flows have %d packets of %d", has, count, connections*each)
	}
}

// TestPassiveTimestamps: where the driver has no clock of the card, times are the system's and status says why, or
// the flow does not start and says what to do.
func TestPassiveTimestamps(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	f := l.start(t, l.passive(", timestamps: prefer", ""), Options{}).Flows()[0]
	testenv.SendRaw(t, &l.A, testenv.Stream(&l.A, &l.B, 9, 0, 30, 500), testenv.SendOptions{})
	s := await(t, f, "the packets", func(s status.Flow) bool { return s.Durable.Packets >= 30 })
	if s.CardClock || !strings.Contains(s.NoCardClock, "the driver has no times") || s.PTPClock != nil || s.CardStamped != 0 {
		t.Errorf("card's clock: %v, because %q; PTP clock %v; %d packets", s.CardClock, s.NoCardClock, s.PTPClock, s.CardStamped)
	}
	stopped(t, f)
	d := l.open(t, l.passive(", timestamps: hardware", ""), Options{})
	var err error
	l.B.Do(t, func() { err = d.Start() })
	if !errors.Is(err, packet.ErrNoCardClock) {
		t.Fatalf("the flow starts: %v", err)
	}
	testenv.MessageNames(t, err.Error(), []string{l.B.Ifname, "card's clock", "set timestamps to prefer or software"})
}

// TestPassiveSnaplen: with a snapshot length the file has what tcpdump has with the same, also of packets whose tag
// was put back, and the whole length of each.
func TestPassiveSnaplen(t *testing.T) {
	const length = 77
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	f := l.start(t, l.passive("", fmt.Sprintf(", snaplen: %d", length)), Options{}).Flows()[0]
	dump := startTcpdumpOf(t, &l.B, "in", length)
	frames := l.addressed()
	l.send(t, f, frames)
	kept := make([][]byte, len(frames))
	for i := range frames {
		kept[i] = frames[i][:min(length, len(frames[i]))]
	}
	theirs := dump.stop(t, len(kept), total(kept))
	await(t, f, "all packets written", func(s status.Flow) bool { return s.Written.Packets >= uint64(len(frames)) })
	stopped(t, f)
	ours := captures.Records(t, l.files(t)...)
	samePackets(t, "our file", captures.Contents(ours), theirs)
	captures.Readable(t, l.files(t)...)
	omitted := uint64(0)
	for i := range frames {
		omitted += uint64(len(frames[i]) - len(kept[i]))
	}
	if s := f.Status(); s.Cut == nil || s.Cut.Bytes != omitted {
		t.Errorf("left out %+v, want %d bytes", s.Cut, omitted)
	}
}

// TestPassiveAuto: where packets may be taken, and the driver grants no zero copy, auto has a packet socket and says
// so. Nothing of the attempt is left, and the host keeps its packets.
func TestPassiveAuto(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	text := strings.Replace(l.passive(", take_over: true", ""), "engine: packet", "engine: auto", 1)
	f := l.start(t, text, Options{}).Flows()[0]
	s := f.Status()
	if s.Engine != "packet" || !strings.Contains(s.WhyEngine, "the driver grants no zero copy") || s.Buffer == nil || l.B.HasProgram(t) {
		t.Errorf("engine %s since %q; buffer %v; a program is attached: %v", s.Engine, s.WhyEngine, s.Buffer, l.B.HasProgram(t))
	}
	frames := testenv.Stream(&l.A, &l.B, 5000, 0, 100, 300)
	testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{})
	await(t, f, "all packets written", func(s status.Flow) bool { return s.Written.Packets == uint64(len(frames)) })
	stopped(t, f)
	samePackets(t, "our file", captures.Packets(t, l.files(t)...), frames)
}
