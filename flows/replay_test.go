package flows

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
	"github.com/unifiedd/unifiedd/umem"
)

// replaying returns a configuration with a flow that captures at end B and a flow that replays captures from
// end A.
func (l *lab) replaying(layout, from, to string) string {
	return strings.Replace(l.defaults(layout), "{size: 96MiB}", "{size: 96MiB, extent: 256KiB, extents: 24}", 1) + fmt.Sprintf(`
  - name: again
    from: {%s}
    to: {interface: %s, %s}
`, from, l.A.Ifname, to)
}

// replay starts the flow that sends. It returns the flow's status once it has sent everything, and the
// packets that tcpdump saw arrive.
func (l *lab) replay(t *testing.T, f *Flow, packets, bytes int) (status.Flow, [][]byte) {
	t.Helper()
	dump := startTcpdumpOf(t, &l.B, "in", 16384)
	var err error
	l.A.Do(t, func() { err = f.Start() })
	testenv.Must(t, err)
	testenv.Wait(t, 30*time.Second, "the captures to be sent", func() bool { return f.Status().State == status.Done || f.Status().State == status.Failed })
	s := f.Status()
	if s.State != status.Done {
		t.Fatalf("it ended as %s: %s", s.State, s.Error)
	}
	return s, dump.stop(t, packets, bytes)
}

// TestReplay captures real traffic, replays it, and compares the packets that tcpdump sees arrive with the
// capture. It does so in each layout, as recorded and at top speed, and with an MTU at which packets span
// descriptors.
func TestReplay(t *testing.T) {
	for _, c := range []struct {
		layout, pace string
		mtu, loops   int
	}{{"slot", "recorded", 1500, 1}, {"packed", "top", 1500, 3}, {"packed", "20x", 9000, 1}} {
		t.Run(c.layout+" "+c.pace, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{MTU: c.mtu, NoAddresses: true})
			d := l.open(t, l.replaying(c.layout, fmt.Sprintf("file: %s/cap, loop: %d", l.dir, c.loops), "pace: "+c.pace), Options{})
			capture, again := d.Flows()[0], d.Flows()[1]
			l.begin(t, capture.Start)
			// The kernel drops a packet that is only a tag before tcpdump sees it.
			frames := slices.DeleteFunc(l.traffic(), func(f []byte) bool { return len(f) < 20 })
			l.send(t, capture, frames)
			await(t, capture, "all packets written", func(s status.Flow) bool { return s.Written.Packets >= uint64(len(frames)) })
			testenv.Must(t, capture.Stop())
			recorded := captures.Records(t, l.files(t)...)
			var want [][]byte
			for range c.loops {
				want = append(want, captures.Contents(recorded)...)
			}
			begun := time.Now()
			s, got := l.replay(t, again, len(want), total(want))
			took := time.Since(begun)
			samePackets(t, "tcpdump of what arrived", got, want)
			// In the packed layout a packet is also joined if its part in an extent is shorter than devices accept.
			// How often that happens depends on when the capture wrote.
			joined := s.CopiedBytes["joined"]
			if c.layout == "packed" && joined < s.Bytes/1000 {
				joined = 0
			}
			if n := uint64(len(want)); s.Packets != n || s.Offered != n || s.Bytes != uint64(total(want)) || lost(s) != 0 || joined != 0 {
				t.Errorf("%d packets of %d, %d bytes; lost %v, copied %v", s.Packets, n, s.Bytes, s.Dropped, s.CopiedBytes)
			}
			if r := s.Replay; r.Played != uint64(c.loops) || r.Unsent != 0 || (r.Lateness != nil) == (c.pace == "top") {
				t.Errorf("%+v", r)
			}
			if span := time.Duration(recorded[len(recorded)-1].Time - recorded[0].Time); c.pace == "recorded" && took < span {
				t.Errorf("it took %v to send what took %v", took, span)
			}
		})
	}
}

// TestReplayInPlace: when a replay of a slot capture sends a packet, the packet is in the region once, where
// the disk put it. It is nowhere else afterwards.
func TestReplayInPlace(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	frames := testenv.Stream(&l.A, &l.B, 5000, 0, 2000, 1000)
	path := l.write(t, "in.pcapng", true, frames)
	d := l.open(t, l.replaying("slot", "file: "+path, "pace: top"), Options{})
	s, got := l.replay(t, d.Flows()[1], len(frames), total(frames))
	samePackets(t, "tcpdump of what arrived", got, frames)
	if s.CopiedBytes["joined"] != 0 || !s.MultiBuffer {
		t.Errorf("copied %v, multi-buffer %v", s.CopiedBytes, s.MultiBuffer)
	}
	if umem.Invariants {
		return // where ownership is checked, extents that are given back are overwritten
	}
	data, whole := d.Region().Data(), 0
	base := d.Region().Size() - 24*256<<10
	for i := 0; i < len(frames); i += 25 { // it takes long to look through the region
		at := bytes.Index(data, frames[i])
		if at < 0 {
			continue // it spans two extents, or its extent was read into again
		}
		if whole++; uint64(at) < base || bytes.Contains(data[at+1:], frames[i]) {
			t.Fatalf("packet %d lies at %#x, outside of the extents, or twice", i, at)
		}
	}
	if whole < len(frames)/25*9/10 {
		t.Errorf("%d of %d packets are found: the test shows little", whole, len(frames)/25)
	}
}

// write writes a capture as other programs do, as pcapng or pcap, with a millisecond between two packets.
func (l *lab) write(t *testing.T, name string, ng bool, frames [][]byte) string {
	t.Helper()
	var out bytes.Buffer
	var err error
	var put func(ci gopacket.CaptureInfo, data []byte) error
	if ng {
		w, e := pcapgo.NewNgWriter(&out, layers.LinkTypeEthernet)
		err, put = e, func(ci gopacket.CaptureInfo, data []byte) error {
			if e := w.WritePacket(ci, data); e != nil {
				return e
			}
			return w.Flush()
		}
	} else {
		w := pcapgo.NewWriterNanos(&out)
		err, put = w.WriteFileHeader(65535, layers.LinkTypeEthernet), w.WritePacket
	}
	for i, f := range frames {
		if err == nil {
			err = put(gopacket.CaptureInfo{Timestamp: time.Unix(1_700_000_000, int64(i)*1e6), CaptureLength: len(f), Length: len(f)}, f)
		}
	}
	path := filepath.Join(l.dir, name)
	if err == nil {
		err = os.WriteFile(path, out.Bytes(), 0o600)
	}
	testenv.Must(t, err)
	return path
}

// mixed writes a capture with 300 packets that can be sent, 100 of them to port 5001, and some that cannot be
// sent.
func (l *lab) mixed(t *testing.T) (path string, good [][]byte) {
	t.Helper()
	var out bytes.Buffer
	w, err := pcapgo.NewNgWriter(&out, layers.LinkTypeEthernet)
	testenv.Must(t, err)
	raw := 0
	put := func(of int, data []byte, length int) {
		ci := gopacket.CaptureInfo{Timestamp: time.Unix(1_700_000_000, int64(len(good))*1e6), CaptureLength: len(data), Length: length, InterfaceIndex: of}
		testenv.Must(t, w.WritePacket(ci, data))
	}
	for n := range 300 {
		f := testenv.UDP(&l.A, &l.B, uint16(4999+n%3), uint64(n), 60+n*4)
		good = append(good, f)
		put(0, f, len(f))
		if n == 0 { // a capture that describes it in front of the first packet would be refused
			raw, err = w.AddInterface(pcapgo.NgInterface{LinkType: layers.LinkTypeRaw})
			testenv.Must(t, err)
		}
		switch {
		case n%100 == 7:
			put(raw, f[14:], len(f)-14)
		case n%100 == 11:
			put(0, f[:50], len(f))
		case n%100 == 13:
			put(0, f[:9], 9)
		case n%100 == 17:
			long := testenv.UDP(&l.A, &l.B, 5001, uint64(n), 1600)
			put(0, long, len(long))
		}
	}
	testenv.Must(t, w.Flush())
	path = filepath.Join(l.dir, "mixed.pcapng")
	testenv.Must(t, os.WriteFile(path, out.Bytes(), 0o600))
	return path, good
}

// TestReplayReasons: a replay counts packets that it cannot send by reason, and packets that its filter does
// not select. The counters account for every packet.
func TestReplayReasons(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	path, good := l.mixed(t)
	pcap := l.write(t, "b.pcap", false, good[:7])
	d := l.open(t, l.replaying("slot", fmt.Sprintf("files: [%s, %s]", path, pcap), "pace: 50Mbit/s"), Options{})
	want := append(append([][]byte{}, good...), good[:7]...)
	s, got := l.replay(t, d.Flows()[1], len(want), total(want))
	samePackets(t, "tcpdump of what arrived", got, want)
	for reason, n := range map[string]uint64{"other_link_type": 3, "cut_short": 3, "too_short": 3, "too_long": 3, "not_matched": 0, "not_sent": 0} {
		if s.Dropped[reason] != n {
			t.Errorf("%s: %d packets, want %d", reason, s.Dropped[reason], n)
		}
	}
	if s.Offered != s.Packets+lost(s) || s.Replay.Captures != 2 {
		t.Errorf("%d packets were found, %d sent and %d not", s.Offered, s.Packets, lost(s))
	}
	closeAudited(t, d)
	d = l.open(t, l.replaying("slot", fmt.Sprintf("file: %s, filter: udp port 5001", path), "pace: top"), Options{Count: 90})
	var some [][]byte
	for i, f := range good {
		if i%3 == 2 && len(some) < 90 {
			some = append(some, f)
		}
	}
	s, got = l.replay(t, d.Flows()[1], len(some), total(some))
	samePackets(t, "tcpdump of what the filter asks for", got, some)
	if s.Dropped["not_matched"] == 0 || s.Dropped["other_link_type"] == 0 {
		t.Errorf("not sent: %v", s.Dropped)
	}
}

// TestReplayDamaged: if a file ends in the middle of a packet, a replay sends all packets before that one.
// Then it fails, and its error names the file.
func TestReplayDamaged(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	frames := testenv.Stream(&l.A, &l.B, 5000, 0, 900, 700)
	path := l.write(t, "cut.pcap", false, frames)
	testenv.Must(t, os.Truncate(path, 24+900*(16+700)-300))
	f := l.open(t, l.replaying("slot", "file: "+path, "pace: top"), Options{}).Flows()[1]
	dump := startTcpdumpOf(t, &l.B, "in", 16384)
	var err error
	l.A.Do(t, func() { err = f.Start() })
	testenv.Must(t, err)
	s := await(t, f, "the flow to fail", func(s status.Flow) bool { return s.State == status.Failed })
	if !strings.Contains(s.Error, path) || !strings.Contains(s.Error, fmt.Sprint(24+899*(16+700))) || s.Packets != 899 {
		t.Errorf("%d packets were sent, and then: %s", s.Packets, s.Error)
	}
	samePackets(t, "tcpdump of what arrived", dump.stop(t, 899, 899*700), frames[:899])
	testenv.Must(t, os.WriteFile(filepath.Join(l.dir, "empty"), nil, 0o600))
	testenv.Must(t, os.WriteFile(filepath.Join(l.dir, "text"), []byte("no capture at all"), 0o600))
	for name, says := range map[string]string{"none": "no segment begins with it", "empty": "it is empty", "text": "neither pcap nor pcapng"} {
		closeAudited(t, l.daemon)
		f := l.open(t, l.replaying("slot", "file: "+filepath.Join(l.dir, name), "pace: top"), Options{}).Flows()[1]
		l.A.Do(t, func() { err = f.Start() })
		if err == nil {
			err = fmt.Errorf("%s", await(t, f, "the flow to fail", func(s status.Flow) bool { return s.State == status.Failed }).Error)
		}
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
	}
}

// TestReplayLive: a replay of segments that a flow still writes sends what is written, and ends there.
func TestReplayLive(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	d := l.open(t, l.replaying("packed", "file: "+l.dir+"/cap", "pace: top"), Options{})
	capture, again := d.Flows()[0], d.Flows()[1]
	l.begin(t, capture.Start)
	frames := testenv.Stream(&l.A, &l.B, 5000, 0, 3000, 900)
	l.send(t, capture, frames)
	await(t, capture, "all packets durable", func(s status.Flow) bool { return s.Durable.Packets == uint64(len(frames)) })
	var err error
	l.A.Do(t, func() { err = again.Start() })
	testenv.Must(t, err)
	await(t, again, "the captures to be sent", func(s status.Flow) bool { return s.State == status.Done || s.State == status.Failed })
	if s := again.Status(); s.State != status.Done || s.Packets != uint64(len(frames)) {
		t.Errorf("%s: %d packets of %d were sent: %s", s.State, s.Packets, len(frames), s.Error)
	}
	await(t, capture, "the packets to be captured again", func(s status.Flow) bool { return s.Durable.Packets == uint64(2*len(frames)) })
	testenv.Must(t, capture.Stop())
	samePackets(t, "the capture", captures.Packets(t, l.files(t)...), append(append([][]byte{}, frames...), frames...))
}

// TestReplayStops: a replay that waits for the time of its next packet stops at once. It starts again with
// the first packet.
func TestReplayStops(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	frames := testenv.Stream(&l.A, &l.B, 5000, 0, 2000, 300)
	path := l.write(t, "slow.pcapng", true, frames)
	f := l.open(t, l.replaying("slot", fmt.Sprintf("file: %s, loop: endless", path), "pace: 0.01x"), Options{}).Flows()[1]
	for range 2 {
		var err error
		l.A.Do(t, func() { err = f.Start() })
		testenv.Must(t, err)
		await(t, f, "some packets", func(s status.Flow) bool { return s.Packets >= 3 })
		testenv.Must(t, f.Stop())
		if s := f.Status(); s.State != status.Stopped || s.Packets >= uint64(len(frames)) || s.Dropped["not_sent"] != 0 {
			t.Errorf("%s after %d packets, not sent: %v", s.State, s.Packets, s.Dropped)
		}
	}
}

// TestReplayLinkDown: a replay sends nothing while there is no link, and then sends all packets that are
// left.
func TestReplayLinkDown(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	frames := testenv.Stream(&l.A, &l.B, 5000, 0, 4000, 300)
	path := l.write(t, "down.pcapng", true, frames)
	f := l.open(t, l.replaying("slot", "file: "+path, "pace: recorded"), Options{}).Flows()[1]
	var err error
	l.A.Do(t, func() { err = f.Start() })
	testenv.Must(t, err)
	await(t, f, "some packets", func(s status.Flow) bool { return s.Packets >= 100 })
	l.A.SetDown(t)
	s := await(t, f, "the flow to wait", func(s status.Flow) bool { return s.State == status.Waiting })
	time.Sleep(200 * time.Millisecond)
	if now := f.Status(); now.Packets != s.Packets {
		t.Errorf("%d packets were sent without a link", now.Packets-s.Packets)
	}
	l.A.SetUp(t)
	s = await(t, f, "everything to be sent", func(s status.Flow) bool { return s.State == status.Done })
	if s.Packets != uint64(len(frames)) || s.Replay.Paused == 0 {
		t.Errorf("%d packets of %d were sent, paused for %v s", s.Packets, len(frames), s.Replay.Paused)
	}
}
