package perftest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/connect/internal/transcript"
	"github.com/unifiedd/unifiedd/rdma/measure"
)

// recording describes a transcript in testdata and its programs.
type recording struct {
	name string
	test Test
	both bool
	qps  int
}

var recordings = []recording{
	{"send_lat", SendLatency, false, 1}, {"send_lat_ud", SendLatency, false, 1}, {"send_bw", SendBandwidth, false, 1}, {"send_bw_ud", SendBandwidth, false, 1},
	{"send_bw_b", SendBandwidth, true, 1}, {"write_lat", WriteLatency, false, 1}, {"write_lat_uc", WriteLatency, false, 1},
	{"write_bw", WriteBandwidth, false, 1}, {"write_bw_q2", WriteBandwidth, false, 2}, {"write_bw_b", WriteBandwidth, true, 1},
	{"read_lat", ReadLatency, false, 1}, {"read_bw_b", ReadBandwidth, true, 1}, {"atomic_lat", AtomicLatency, false, 1}, {"atomic_bw", AtomicBandwidth, false, 1},
}

// heard holds the keys, each once, and the report that a side sent in a transcript.
type heard struct {
	keys   []Key
	report Report
}

func listenTo(t *testing.T, all transcript.Transcript, side transcript.Side) (h heard) {
	t.Helper()
	var words []uint64
	for _, b := range all.By(side) {
		switch len(b) {
		case keyGIDBytes:
			k, err := DecodeKey(b)
			testenv.Must(t, err)
			if !slices.Contains(h.keys, k) {
				h.keys = append(h.keys, k)
			}
		case 8:
			words = append(words, binary.BigEndian.Uint64(b))
		}
	}
	if len(words) > 0 {
		h.report = reportOf([5]uint64(words))
	}
	return h
}

func tcpPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	client, server, err := transcript.Pair()
	testenv.Must(t, err)
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server
}

// run takes a session through a test.
func run(ctx context.Context, conn net.Conn, c Config, ours heard, lead func([]Key) error) (theirs heard, err error) {
	s, err := Begin(ctx, conn, c)
	if err != nil {
		return theirs, err
	}
	if theirs.keys, err = s.Exchange(ctx, ours.keys, lead); err != nil {
		return theirs, err
	}
	if err = s.Start(ctx); err != nil {
		return theirs, err
	}
	theirs.report, err = s.Finish(ctx, ours.report)
	return theirs, errors.Join(err, conn.Close())
}

// TestAgainstRecordedPrograms: in either role, our side sends the same bytes in the same order as
// the recorded programs, and decodes theirs correctly.
func TestAgainstRecordedPrograms(t *testing.T) {
	for _, r := range recordings {
		all, err := transcript.Read("testdata/" + r.name + ".txt")
		testenv.Must(t, err)
		client, server := listenTo(t, all, transcript.Client), listenTo(t, all, transcript.Server)
		for _, as := range []transcript.Side{transcript.Client, transcript.Server} {
			a, b := tcpPair(t)
			theirConn, conn, role, ours, want := a, b, Server, server, client
			if as == transcript.Server {
				theirConn, conn, role, ours, want = b, a, Client, client, server
			}
			played := make(chan error, 1)
			go func() { played <- all.Play(theirConn, as) }()
			led := 0
			got, err := run(t.Context(), conn, Config{Test: r.test, Role: role, MTU: rdma.MTU1024, Both: r.both}, ours,
				func(remote []Key) error { led = len(remote); return nil })
			if err := errors.Join(err, conn.Close(), <-played); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s, they the %s: %v", r.name, as, err)
			}
			if led != r.qps || !slices.Equal(got.keys, want.keys) || got.report != want.report {
				t.Errorf("%s, they the %s: heard %+v of %d queue pairs, want %+v", r.name, as, got, led, want)
			}
		}
	}
}

// TestReportOfARow: a client's report has the values of its table.
func TestReportOfARow(t *testing.T) {
	all, err := transcript.Read("testdata/write_bw.txt")
	testenv.Must(t, err)
	row := listenTo(t, all, transcript.Client).report.Bandwidth(measure.MB)
	if got := row.Row(); got != " 65536      20               5.85               5.09   \t\t   0.000081" {
		t.Errorf("%q", got)
	}
	if ReportOf(row).Bandwidth(measure.MB) != row {
		t.Error("a row does not survive a report")
	}
}

// TestOursTogether: our client and our server complete every test, in both directions where the
// test allows it.
func TestOursTogether(t *testing.T) {
	for test := SendLatency; test <= AtomicBandwidth; test++ {
		for _, both := range []bool{false, true} {
			if both && test.Latency() {
				continue
			}
			a, b := tcpPair(t)
			keys := func(qpn uint32) heard {
				return heard{[]Key{{Reads: 1, QPN: qpn, LID: 1}, {Reads: 1, QPN: qpn + 1, LID: 1}}, Report{Size: uint64(qpn)}}
			}
			fine := func([]Key) error { return nil }
			done := make(chan error, 1)
			go func() {
				_, err := run(t.Context(), b, Config{Test: test, Role: Server, MTU: rdma.MTU4096, Both: both}, keys(10), fine)
				done <- err
			}()
			got, err := run(t.Context(), a, Config{Test: test, Role: Client, MTU: rdma.MTU256, Both: both}, keys(20), fine)
			if err := errors.Join(err, <-done); err != nil {
				t.Errorf("%v: %v", test, err)
			}
			if !slices.Equal(got.keys, keys(10).keys) || got.report.Size != 0 && got.report.Size != 10 {
				t.Errorf("%v: %+v", test, got)
			}
		}
	}
}

// TestAgreement: both sides choose the smaller MTU and the larger of the other sizes.
func TestAgreement(t *testing.T) {
	a, b := tcpPair(t)
	go func() {
		_, _ = Begin(t.Context(), b, Config{Role: Server, MTU: rdma.MTU4096})
	}()
	s, err := Begin(t.Context(), a, Config{Role: Client, MTU: rdma.MTU2048})
	testenv.Must(t, err)
	if got := s.Agreed(); got != (Agreed{"6.06", rdma.MTU2048, 4096, 64}) || s.Reach(2) != 4096 || s.Reach(65536) != 65536 {
		t.Errorf("%+v", got)
	}
}

const (
	version = "6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	sizes   = "\x00\x00\x10\x00\x00\x00\x00\x40"
	gidKey  = "0000:0001:000017:45a437:00000877:000055e1b405e000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:63:00:01:00000000:\x00"
)

func TestRefused(t *testing.T) {
	replaced := func(old, with string) string {
		return version + sizes + "3\x00" + strings.Replace(gidKey, old, with, 1)
	}
	for _, c := range []struct{ send, says string }{
		{strings.Replace(version, "6.06", "5.69", 1), "it must be 5.70 or later"},
		{strings.Replace(version, "6.06", "6.28", 1), "take 25.10 or earlier"},
		{strings.Replace(version, "6.06", "1e99", 1), "is not a version of perftest's"},
		{strings.Repeat("6", 16), "is not a version of perftest's"},
		{"0000:000012:456c8f:0000", "is not a version of perftest's"},
		{version[:9], "agree on versions and sizes: unexpected EOF"},
		{version + "\x7f\xff\xff\xff", "cycle buffer of 2147483647 bytes is larger"},
		{version + "\x00\x00\x10\x00\xff\xff\xff\xff", "cache line of 4294967295 bytes is larger"},
		{version + sizes + "0\x00", `MTU "0\x00" is none`},
		{version + sizes + "33", `MTU "33" is none`},
		{replaced("0a:63", "0A:63"), "is not a key of perftest's"},
		{replaced("0a:63", "0a63:"), "is not a key of perftest's"},
		{replaced("45a437", " 5a437"), "is not a key of perftest's"},
		{replaced("\x00", "\n"), "is not a key of perftest's"},
		{replaced("ff:ff:0a", "00:00:0a"), "one side has an IPv4 GID"},
		{replaced("none", ""), "exchange keys of queue pairs that are connected: EOF"},
	} {
		a, b := tcpPair(t)
		_, err := a.Write([]byte(c.send))
		testenv.Must(t, errors.Join(err, a.(*net.TCPConn).CloseWrite()))
		k, err := DecodeKey([]byte(gidKey))
		testenv.Must(t, err)
		_, err = run(t.Context(), b, Config{Test: SendLatency, Role: Server, MTU: rdma.MTU1024}, heard{keys: []Key{k}}, func([]Key) error { return nil })
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.send, err, c.says)
		}
	}
}

func TestTimes(t *testing.T) {
	a, _ := tcpPair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Begin(ctx, a, Config{Role: Client, MTU: rdma.MTU1024}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent server: %v", err)
	}
}

// TestLeadFails: Exchange returns the device's error unchanged, and sends the peer no second key.
func TestLeadFails(t *testing.T) {
	a, b := tcpPair(t)
	if _, err := a.Write([]byte(version + sizes + "3\x00" + gidKey)); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("no route")
	k, _ := DecodeKey([]byte(gidKey))
	_, err := run(t.Context(), b, Config{Test: SendLatency, Role: Server, MTU: rdma.MTU1024}, heard{keys: []Key{k}}, func([]Key) error { return broken })
	if err != broken {
		t.Error(err)
	}
}

// TestReads: each side has as many READs outstanding as the other side allows.
func TestReads(t *testing.T) {
	theirs, ours := Key{QPN: 20, LID: 1, Reads: 1}, Key{Reads: 128}
	p, err := theirs.Parameters(rdma.RC, rdma.MTU1024, ours)
	testenv.Must(t, err)
	path := connect.Agree(connect.Parameters{MTU: rdma.MTU4096, MaxReads: 128, MaxRemoteReads: 128}, p)
	if path != (connect.Path{MTU: rdma.MTU1024, MaxReads: 1, MaxRemoteReads: 128}) {
		t.Errorf("%+v", path)
	}
	if p, err := theirs.Parameters(rdma.UD, rdma.MTU1024, ours); err != nil || p.QKey != 0x11111111 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := (&Key{}).Parameters(rdma.RC, rdma.MTU1024, ours); err == nil {
		t.Error("queue pair 0 was taken")
	}
	if k := KeyOf(connect.Parameters{QPN: 5}, 1, 2); k.Reads != 1 || k.RKey != 1 || k.Addr != 2 {
		t.Errorf("%+v", k)
	}
}

// TestDefaults: the defaults are those in the programs' help.
func TestDefaults(t *testing.T) {
	for test, want := range map[Test]Traffic{SendLatency: {2, 1000, 1, 512, 100}, WriteBandwidth: {65536, 5000, 128, 512, 1},
		AtomicBandwidth: {8, 1000, 128, 512, 100}, ReadBandwidth: {65536, 1000, 128, 512, 1}} {
		if got := test.Defaults(); got != want {
			t.Errorf("%v: %+v, want %+v", test, got, want)
		}
	}
	if s := ReadLatency.Settings(); s.Access != rdma.RemoteRead || s.MaxReads != 255 || s.RNRRetries != 7 || s.HopLimit != 255 {
		t.Errorf("%+v", s)
	}
}

func TestNames(t *testing.T) {
	for test := SendLatency; test <= AtomicBandwidth; test++ {
		if got, err := ParseTest(strings.TrimPrefix(test.String(), "ib_")); err != nil || got != test {
			t.Errorf("%v: %v, %v", test, got, err)
		}
	}
	if _, err := ParseTest("ib_wrong_lat"); err == nil || !strings.Contains(err.Error(), "ib_atomic_bw") {
		t.Error(err)
	}
}

// FuzzDecodeKey: DecodeKey accepts only the one text that Encode makes for a key.
func FuzzDecodeKey(f *testing.F) {
	f.Add([]byte(gidKey))
	f.Add([]byte("0001:0080:000017:45a437:00000877:000055e1b405e000:00000000\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := DecodeKey(b)
		if err == nil && !bytes.Equal(k.Encode(), b) {
			t.Errorf("%q became %+v", b, k)
		}
	})
}

// FuzzSession: for any input from a client, a server of any test ends with an error or in good
// order.
func FuzzSession(f *testing.F) {
	for _, r := range recordings {
		all, err := transcript.Read("testdata/" + r.name + ".txt")
		testenv.Must(f, err)
		f.Add(int(r.test), r.both, bytes.Join(all.By(transcript.Client), nil))
	}
	f.Fuzz(func(t *testing.T, test int, both bool, sent []byte) {
		k, err := DecodeKey([]byte(gidKey))
		testenv.Must(t, err)
		c := Config{Test: Test(uint(test) % uint(len(programs))), Role: Server, MTU: rdma.MTU1024, Both: both}
		got, err := run(t.Context(), &spoken{in: bytes.NewReader(sent)}, c, heard{keys: []Key{k}}, func([]Key) error { return nil })
		if err == nil && len(got.keys) != 1 {
			t.Errorf("%v ended well with %d keys", c.Test, len(got.keys))
		}
	})
}

// spoken is a connection whose input is complete from the start.
type spoken struct {
	net.Conn
	in *bytes.Reader
}

func (s *spoken) Read(b []byte) (int, error)      { return s.in.Read(b) }
func (s *spoken) Write(b []byte) (int, error)     { return len(b), nil }
func (s *spoken) SetDeadline(time.Time) error     { return nil }
func (s *spoken) SetReadDeadline(time.Time) error { return nil }
func (s *spoken) Close() error                    { return nil }
