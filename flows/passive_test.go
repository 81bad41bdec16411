package flows

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/unifiedd/unifiedd/flows/source/packet"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// passive is a configuration of a flow with a packet socket, with more settings of its source and of its sink.
func (l *lab) passive(from, to string) string {
	return fmt.Sprintf(`
region: {size: 32MiB}
workers: [{name: main}]
flows:
  - name: cap
    from: {interface: %s, engine: packet, buffer: 16MiB%s}
    to: {file: %s/cap, segment: {size: 32MiB}, flush: 50ms, durable: 200ms%s}
`, l.B.Ifname, from, l.dir, to)
}

// passiveSource returns the packet socket of a running flow.
func passiveSource(t *testing.T, f *Flow) *packet.Source {
	t.Helper()
	s, ok := f.interfaceSource().(*packet.Source)
	if !ok {
		t.Fatalf("the flow receives from %T", f.interfaceSource())
	}
	return s
}

// TestPassiveEveryPacket: TestCaptureEveryPacket for a packet socket. The host has received the packets, too.
func TestPassiveEveryPacket(t *testing.T) {
	passiveEveryPacket(t)
}

func passiveEveryPacket(t *testing.T) status.Flow {
	t.Helper()
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	s := l.everyPacket(t, l.passive("", ""))
	if s.Waiting != 0 || s.Engine != "packet" || s.Buffer == nil || s.Buffer.Received == 0 || s.CopiedBytes["moved"] != 0 || s.CopiedBytes["packed"] != 0 {
		t.Errorf("%+v", s)
	}
	if s.FrameTimes.Done == nil || s.FrameTimes.Done.Count == 0 {
		t.Errorf("no block has a time: %+v", s.FrameTimes)
	}
	if n := l.B.Stats(t).RxPackets - l.came; n != s.Packets || l.B.HasProgram(t) {
		t.Errorf("the host received %d packets, program %v", n, l.B.HasProgram(t))
	}
	return s
}

// dumped is a packet in a file of tcpdump's.
type dumped struct {
	at   int64
	data []byte
}

// withTimes reads a classic file with its times.
func withTimes(t *testing.T, name string) (all []dumped) {
	t.Helper()
	f, err := os.Open(name)
	testenv.Must(t, err)
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	testenv.Must(t, err)
	for {
		data, info, err := r.ReadPacketData()
		if err != nil {
			return all
		}
		all = append(all, dumped{info.Timestamp.UnixNano(), data})
	}
}

// sameTimes checks that packets have the times of tcpdump's, which has microseconds.
func sameTimes(t *testing.T, ours []testenv.Captured, theirs []dumped) {
	t.Helper()
	late, most := 0, int64(0)
	for i := range ours {
		if d := ours[i].Time - theirs[i].at; d < 0 || d >= 1000 {
			late, most = late+1, max(most, d, -d)
		}
	}
	if late > 0 {
		t.Errorf("%d of %d times differ by a microsecond or more, one by %d ns", late, len(ours), most)
	}
}

// flagsOf returns the flags of each packet of files.
func flagsOf(t *testing.T, files ...string) (all []uint32) {
	t.Helper()
	le := binary.LittleEndian
	for _, b := range blocksOf(t, files...) {
		if b.kind != typePacket {
			continue
		}
		options := b.body[20+(le.Uint32(b.body[12:])+3)&^3:]
		if len(options) < 8 || le.Uint16(options) != 2 {
			t.Fatalf("a packet has no flags: %x", options)
		}
		all = append(all, le.Uint32(options[4:]))
	}
	return all
}

// seen leaves out the packets that no socket sees arrive: the kernel drops a tag with nothing behind it when it
// takes the tag out (skb_vlan_untag).
func seen(frames [][]byte) [][]byte {
	return slices.DeleteFunc(frames, func(f []byte) bool {
		tagged := len(f) > 13 && (f[12] == 0x81 && f[13] == 0 || f[12] == 0x88 && f[13] == 0xa8)
		return tagged && len(f) <= 18
	})
}

// TestPassiveSameAsTcpdump compares with tcpdump at the same end: every kind of packet of 60 bytes to the MTU,
// tagged and broken ones, in both directions, in the same order and with the same times.
func TestPassiveSameAsTcpdump(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		t.Run(fmt.Sprintf("MTU %d", mtu), func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{MTU: mtu, NoAddresses: true})
			f := l.start(t, l.passive("", ""), Options{}).Flows()[0]
			dump := startTcpdumpOf(t, &l.B, "inout", 16384)
			in, out := seen(l.traffic()), testenv.Frames(testenv.Zoo(&l.B, &l.A, mtu))
			frames := slices.Concat(in, out)
			l.send(t, f, in)
			if sent := testenv.SendRaw(t, &l.B, out, testenv.SendOptions{}); sent != len(out) {
				t.Fatalf("sent %d of %d", sent, len(out))
			}
			theirs := dump.stop(t, len(frames), total(frames))
			samePackets(t, "tcpdump of what was sent", theirs, frames)
			await(t, f, "all packets written", func(s status.Flow) bool { return s.Written.Packets >= uint64(len(frames)) })
			stopped(t, f)
			captures.Readable(t, l.files(t)...)
			ours := captures.Records(t, l.files(t)...)
			samePackets(t, "our file", captures.Contents(ours), theirs)
			balanced(t, f.Status(), uint64(len(frames)))
			sameTimes(t, ours, withTimes(t, dump.file))
			for i, flags := range flagsOf(t, l.files(t)...) {
				if want := uint32(1 + i/len(in)); flags&3 != want {
					t.Fatalf("packet %d has flags %#x, want direction %d", i, flags, want)
				}
			}
		})
	}
}

// TestPassiveRefilter: a filter is replaced while packets arrive. Those that both filters take are in the file
// without a gap, and each of the others only while its filter was in force.
func TestPassiveRefilter(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	text := func(i int) string { return l.passive(fmt.Sprintf(", filter: %q", swapFilters[i%2]), "") }
	f := l.start(t, text(0), Options{}).Flows()[0]
	s := l.flood(t, nil) // what the filter rejects is not offered to a packet socket
	testenv.Wait(t, 10*time.Second, "packets", func() bool { return f.Status().Packets > 100 })
	for i := 1; i <= 12; i++ {
		r := l.reloaded(t, text(i))
		if len(r.Plan.Filters) != 1 || f.Status().Filter != swapFilters[i%2] {
			t.Fatalf("swap %d: %+v", i, r.Plan)
		}
		before := s.sent.Load()
		testenv.Wait(t, 10*time.Second, "packets for the new filter", func() bool { return s.sent.Load() > before+20 })
	}
	sent := s.stop(t)
	testenv.Must(t, f.Stop())
	count, both := [streams]int{}, uint64(0)
	for _, frame := range captures.Packets(t, l.files(t)...) {
		n, ok := testenv.Sequence(frame)
		if !ok || !testenv.Intact(frame) {
			t.Fatalf("a packet that was not sent: %x", frame)
		}
		count[n%streams]++
		if n%streams == bothPort-firstPort {
			if n != both*streams+bothPort-firstPort {
				t.Fatalf("packet %d follows, and not %d", n, both*streams+bothPort-firstPort)
			}
			both++
		}
	}
	if want := (sent - (bothPort - firstPort) + streams - 1) / streams; both != want || count[0] == 0 || count[1] == 0 || count[3] != 0 || uint64(count[0]) == want {
		t.Errorf("of %d packets the file has %v of each stream", sent, count)
	}
	if s := f.Status(); s.Dropped["buffer_full"] != 0 {
		t.Errorf("%v were lost", s.Dropped)
	}
}

// TestPassiveBegunDown: a flow whose interface is down when it begins receives once it is up, also one that shares
// the packets with others.
func TestPassiveBegunDown(t *testing.T) {
	for name, settings := range map[string]string{"alone": "", "fanout": ", fanout: some"} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			l.B.SetDown(t)
			d := l.open(t, l.passive(settings, ""), Options{})
			var err error
			l.B.Do(t, func() { err = d.Start() })
			testenv.Must(t, err)
			f := d.Flows()[0]
			await(t, f, "the flow to wait", func(s status.Flow) bool { return s.State == status.Waiting })
			l.B.SetUp(t)
			l.Carry(t)
			await(t, f, "the flow to go on", func(s status.Flow) bool { return s.State == status.Running })
			testenv.SendRaw(t, &l.A, testenv.Stream(&l.A, &l.B, 9, 0, 10, 200), testenv.SendOptions{})
			await(t, f, "the packets", func(s status.Flow) bool { return s.Written.Packets == 10 })
			stopped(t, f)
		})
	}
}

// TestPassiveOverload: when the worker cannot take packets, the kernel drops what the ring has no room for, and
// counts it. Status, file and ledger agree, and say when.
func TestPassiveOverload(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	text := strings.Replace(l.passive("", ""), "buffer: 16MiB", "buffer: 2MiB", 1)
	f := l.start(t, text, Options{}).Flows()[0]
	frames, held, resume := testenv.Stream(&l.A, &l.B, 5000, 0, 6000, 1000), make(chan struct{}), make(chan struct{})
	go func() { _ = f.worker.Do(func() error { close(held); <-resume; return nil }) }()
	<-held
	sent := testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{})
	close(resume)
	s := await(t, f, "the drops", func(s status.Flow) bool {
		d := s.Buffer.Last
		return s.Dropped["buffer_full"]+s.Written.Packets == uint64(sent) && d != nil && d.Packets == s.Dropped["buffer_full"]
	})
	if s.Dropped["buffer_full"] == 0 || s.Written.Packets == 0 || s.Buffer.Full == 0 {
		t.Errorf("nothing was dropped: %+v", s)
	}
	if d := s.Buffer.Last; d.Packets != s.Dropped["buffer_full"] || time.Since(d.Until) > time.Minute || !d.Since.Before(d.Until) {
		t.Errorf("%d were dropped, and %+v", s.Dropped["buffer_full"], d)
	}
	stopped(t, f)
	balanced(t, f.Status(), uint64(sent))
	var last statistic
	for _, b := range blocksOf(t, l.files(t)...) {
		if b.kind == typeStatistics {
			last = parseStatistic(b)
		}
	}
	if last.opts[7] != s.Dropped["buffer_full"] || last.opts[6] != uint64(sent) || last.opts[8] != s.Written.Packets {
		t.Errorf("the file's statistics are %v", last.opts)
	}
	samePackets(t, "the file", captures.Packets(t, l.files(t)...), frames[:s.Written.Packets])
}

// TestPassiveDirections: with mirror a packet socket has one direction. auto chooses it, and says why.
func TestPassiveDirections(t *testing.T) {
	for mirror, want := range map[string]int{"ingress": 0, "egress": 1} {
		t.Run(mirror, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			text := strings.Replace(l.passive(", mirror: "+mirror+", filter: udp", ""), "engine: packet", "engine: auto", 1)
			f := l.start(t, text, Options{}).Flows()[0]
			if s := f.Status(); s.Engine != "packet" || !strings.Contains(s.WhyEngine, "mirror is set") || !slices.Equal(s.Mirrors, []string{mirror}) {
				t.Errorf("engine %s since %q, mirrors %v", s.Engine, s.WhyEngine, s.Mirrors)
			}
			both := [][][]byte{testenv.Stream(&l.A, &l.B, 1, 0, 50, 300), testenv.Stream(&l.B, &l.A, 2, 0, 60, 400)}
			testenv.SendRaw(t, &l.A, both[0], testenv.SendOptions{})
			testenv.SendRaw(t, &l.B, both[1], testenv.SendOptions{})
			await(t, f, "packets", func(s status.Flow) bool { return s.Written.Packets >= uint64(len(both[want])) })
			stopped(t, f)
			samePackets(t, mirror, captures.Packets(t, l.files(t)...), both[want])
		})
	}
}
