package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
	"github.com/unifiedd/unifiedd/umem"
)

// waitLimit is the limit of every wait, on a machine with other work.
var waitLimit = testenv.Within(60 * time.Second)

// rig simulates two machines: network namespaces joined by a veth pair, each with a region and a device.
type rig struct {
	testing.TB
	near, far *side // of senders and of receivers
}

// side is one machine.
type side struct {
	testing.TB
	ns     rocetest.Machine
	region *umem.Region
	device rdma.Device
	at     *stream.Endpoint
}

// machines makes the places of a rig. Tests in the lab change it.
var machines = rocetest.Pair

// memory is a region with extents of a size.
func memory(piece uint64, extents uint64) umem.Config {
	return umem.Config{Size: 16<<20 + (extents+1)*piece, Pages: umem.Ordinary, ExtentSize: piece, Extents: extents}
}

// newRig opens a region and a device on both machines. The end of the test removes them, and checks that every frame is in
// its pool.
func newRig(t testing.TB, near, far umem.Config) *rig {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	a, b := machines(t)
	return &rig{TB: t, near: newSide(t, a, near), far: newSide(t, b, far)}
}

// small is a rig with pieces of 1 MiB.
func small(t testing.TB) *rig {
	t.Helper()
	return newRig(t, memory(1<<20, 4), memory(1<<20, 8))
}

func newSide(t testing.TB, m rocetest.Machine, c umem.Config) *side {
	t.Helper()
	s := &side{TB: t, ns: m}
	s.region, s.device = m.Start(t, c)
	var err error
	s.at, err = stream.OpenEndpoint(s.device, s.region)
	s.must(err)
	t.Cleanup(func() { s.check(s.at.Close()) })
	return s
}

func (s *side) must(err error) { s.Helper(); testenv.Must(s, err) }

// check is must for clean-ups, and for goroutines other than the test's.
func (s *side) check(err error) { s.Helper(); testenv.Check(s, err) }

// quiet is a log that shows what happened if the test fails.
func quiet(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// taking is a receiver that serves.
type taking struct {
	*Receiver
	*side
	dir     string
	address string
	copies  chan Copy
	cancel  context.CancelFunc
	served  chan struct{}
	ended   bool
}

// receive starts a receiver on a machine. The end of the test ends it.
func (s *side) receive(c ReceiverConfig, secret *connect.Credentials) *taking {
	s.Helper()
	v := &taking{side: s, dir: c.Path, copies: make(chan Copy, 64), served: make(chan struct{})}
	c.Endpoint, c.Log = s.at, quiet(s)
	if c.Window == 0 {
		c.Window = 4
	}
	if c.Senders == 0 {
		c.Senders = 2
	}
	c.Done = func(one Copy) { v.copies <- one }
	var err error
	v.Receiver, err = OpenReceiver(c)
	s.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	v.cancel = cancel
	var l *connect.Listener
	s.ns.Do(s, func() {
		l, err = connect.Listen(ctx, netip.AddrPortFrom(s.ns.IP, 0).String(), connect.Config{Credentials: secret})
	})
	s.must(err)
	v.address = l.Addr().String()
	go func() {
		defer close(v.served)
		s.check(v.Serve(ctx, l))
		s.check(l.Close())
	}()
	s.Cleanup(v.end)
	return v
}

// end ends the receiver, as Ctrl-C does.
func (v *taking) end() {
	v.Helper()
	if v.ended {
		return
	}
	v.ended = true
	v.cancel()
	<-v.served
	v.check(v.Receiver.Close())
}

// copied waits for a copy.
func (v *taking) copied() Copy {
	v.Helper()
	select {
	case c := <-v.copies:
		return c
	case <-time.After(waitLimit):
		v.Fatalf("no copy is complete: %+v", v.Stats())
	}
	return Copy{}
}

// send sends a source to the end.
func (s *side) send(c SenderConfig) (st SenderStats, digest [32]byte, err error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	return s.sendUntil(ctx, c)
}

// sendUntil is send that ends with a context.
func (s *side) sendUntil(ctx context.Context, c SenderConfig) (st SenderStats, digest [32]byte, err error) {
	s.Helper()
	k := s.sender(c)
	s.ns.Do(s, func() { err = k.Run(ctx) })
	st, digest = k.Stats(), k.Digest()
	s.check(k.Close())
	return st, digest, err
}

// sender opens a sender.
func (s *side) sender(c SenderConfig) *Sender {
	s.Helper()
	c.Endpoint, c.Log = s.at, quiet(s)
	if c.Window == 0 {
		c.Window = 4
	}
	if c.Timeout == 0 {
		c.Timeout = waitLimit
	}
	k, err := OpenSender(c)
	s.must(err)
	return k
}

// content makes bytes that follow from a seed.
func content(seed uint64, n int) []byte {
	b := make([]byte, n+8)
	r := rand.NewPCG(seed, 2)
	for at := 0; at < n; at += 8 {
		binary.LittleEndian.PutUint64(b[at:], r.Uint64())
	}
	return b[:n]
}

// file makes a file.
func file(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(testenv.DiskDir(t), name)
	testenv.Must(t, os.WriteFile(path, content, 0o640))
	return path
}

// equal compares a file with bytes.
func equal(t testing.TB, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	testenv.Must(t, err)
	if !bytes.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Fatalf("%s has %d bytes and differs from byte %d on, want %d", path, len(got), at, len(want))
	}
}

// only checks that a directory has these files and no others.
func only(t testing.TB, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	testenv.Must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if len(got) != len(want) {
		t.Fatalf("%s has %q, want %q", dir, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s has %q, want %q", dir, got, want)
		}
	}
}
