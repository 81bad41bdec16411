package blocks

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
	"github.com/unifiedd/unifiedd/umem"
)

// waitLimit is the limit of every wait, on a machine with other work.
var waitLimit = testenv.Within(30 * time.Second)

// rig simulates two machines: network namespaces joined by a veth pair, each with a region and a
// device.
type rig struct {
	testing.TB
	near, far *side // of clients and of servers
}

// side is one machine.
type side struct {
	testing.TB
	ns     rocetest.Machine
	region *umem.Region
	at     *stream.Endpoint
}

// The places of rigs and of disks. Tests in the lab change them.
var (
	machines = rocetest.Pair
	diskPath = func(t testing.TB, _ uint64) string { return filepath.Join(testenv.DiskDir(t), "served") }
)

// Extents of servers are shorter than those of clients, so that a request can need several.
const (
	extent     = 256 << 10
	nearExtent = 1 << 20
)

// newRig opens a region and a device on both machines. The end of the test removes them, and checks
// that every frame is in its pool.
func newRig(t testing.TB, server umem.Config) *rig {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	near, far := machines(t)
	return &rig{TB: t, near: newSide(t, near, umem.Config{Size: 48 << 20, Pages: umem.Ordinary, ExtentSize: nearExtent, Extents: 32}), far: newSide(t, far, server)}
}

func withExtents(n uint64) umem.Config {
	return umem.Config{Size: 16<<20 + n*extent, Pages: umem.Ordinary, ExtentSize: extent, Extents: n}
}

func newSide(t testing.TB, m rocetest.Machine, c umem.Config) *side {
	t.Helper()
	s := &side{TB: t, ns: m}
	region, d := m.Start(t, c)
	var err error
	s.region = region
	s.at, err = stream.OpenEndpoint(d, region)
	s.must(err)
	t.Cleanup(func() { s.check(s.at.Close()) })
	return s
}

func (s *side) must(err error) { s.Helper(); testenv.Must(s, err) }

// check is must for clean-ups, and for goroutines other than the test's.
func (s *side) check(err error) { s.Helper(); testenv.Check(s, err) }

// hands makes a book with a worker's holder.
func (s *side) hands(name string) *umem.Holder {
	s.Helper()
	book := s.region.NewBook(name)
	h, err := book.NewHolder(umem.OwnerWorker, name)
	s.must(err)
	s.Cleanup(func() { s.check(book.Close()) })
	return h
}

// disk is a file whose bytes follow from their offsets and from a seed.
type disk struct {
	path    string
	content []byte
	target  *nvme.Target
}

func newDisk(t testing.TB, size int) *disk {
	t.Helper()
	d := &disk{path: diskPath(t, uint64(size)), content: make([]byte, size)}
	d.fill(1)
	testenv.Must(t, os.WriteFile(d.path, d.content, 0o600))
	d.open(t, nvme.TargetConfig{Path: d.path, ReadOnly: true})
	return d
}

func (d *disk) open(t testing.TB, c nvme.TargetConfig) {
	t.Helper()
	var err error
	d.target, err = nvme.OpenTarget(c)
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Check(t, d.target.Close()) })
}

// fill makes other contents.
func (d *disk) fill(seed uint64) {
	r := rand.NewPCG(seed, 2)
	for at := 0; at < len(d.content); at += 8 {
		binary.LittleEndian.PutUint64(d.content[at:], r.Uint64())
	}
}

// served is a server and the worker that polls it.
type served struct {
	*side
	*disk
	server  *Server
	config  Config
	address string
	loop    *rocetest.Loop
	spins   bool // it never sleeps
	failed  bool // of the worker
	stop    func()
}

// serve serves a disk to any client, until the end of the test.
func (s *side) serve(d *disk, c Config) *served {
	s.Helper()
	v := &served{side: s, disk: d, config: c}
	v.config.Name, v.config.Endpoint, v.config.Worker, v.config.Target, v.config.Flow = "test", s.at, s.hands("server"), d.target, "blocks"
	var err error
	v.server, err = Open(v.config)
	s.must(err)
	_, v.spins = s.TB.(*testing.B)
	v.loop = rocetest.NewLoop(v.round, v.wait)
	ctx, cancel := context.WithCancel(context.Background())
	var l *connect.Listener
	s.ns.Do(s, func() { l, err = connect.Listen(ctx, netip.AddrPortFrom(s.ns.IP, 0).String(), connect.Config{}) })
	s.must(err)
	v.address = l.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() { s.check(v.server.Serve(ctx, l, v.do)) })
	v.stop = sync.OnceFunc(func() {
		cancel()
		serving.Wait()
		s.check(l.Close())
		v.loop.Stop()
		s.check(v.server.Close())
		s.check(v.server.Close())
	})
	s.Cleanup(v.stop)
	return v
}

// round is what the worker's thread does; nothing once the server has failed.
func (v *served) round() bool {
	if v.failed {
		return false
	}
	more, err := v.server.Poll(time.Now())
	v.config.Worker.Book().Publish()
	if err != nil {
		v.Error(err)
		v.failed = true
	}
	return more
}

func (v *served) wait() {
	switch {
	case v.spins:
		return
	case !v.config.Events:
		time.Sleep(20 * time.Microsecond)
		return
	}
	fds := v.server.FDs(nil)
	limit := unix.NsecToTimespec(int64(20 * time.Millisecond)) // for commands, not for requests
	_, _ = unix.Ppoll(fds, &limit, nil)
}

// do is the worker's Doer.
func (v *served) do(f func() error) error { return v.loop.Do(f) }

// settled waits until the server has answered every received request, and knows that the answers
// have arrived. It returns the counters.
func (v *served) settled() Stats {
	v.Helper()
	var st Stats
	testenv.Wait(v, waitLimit, "not all requests are answered", func() bool {
		st = v.server.Stats()
		refused := uint64(0)
		for _, n := range st.Refused {
			refused += n
		}
		return st.Served+refused+st.Abandoned >= st.Requests
	})
	return st
}

// hold stops the worker until the caller calls release.
func (v *served) hold() (release func()) {
	holding, end := make(chan struct{}), make(chan struct{})
	go v.do(func() error { close(holding); <-end; return nil })
	<-holding
	return func() { close(end) }
}

// customer is a client with memory for the answers.
type customer struct {
	testing.TB
	*side
	*Client
	region  *umem.Region
	served  *served
	hands   *umem.Holder
	frames  []umem.Frame
	extents []umem.Frame
	rand    *rand.Rand
}

// newCustomer connects.
func (s *side) newCustomer(v *served, c ClientConfig, frames, extents int) *customer {
	s.Helper()
	u := &customer{TB: s.TB, side: s, region: s.region, served: v, rand: rand.New(rand.NewPCG(7, uint64(frames)))}
	u.hands = s.hands("client")
	u.frames, u.extents = make([]umem.Frame, frames), make([]umem.Frame, extents)
	if n, m := u.hands.Take(u.frames), u.hands.TakeExtents(u.extents); n < frames || m < extents {
		s.Fatalf("the pool has %d frames and %d extents", n, m)
	}
	s.Cleanup(func() { u.hands.Close() })
	u.dial(c)
	s.Cleanup(func() { s.check(u.Client.Close()) })
	return u
}

func (u *customer) config(c ClientConfig) ClientConfig {
	c.Name, c.Endpoint, c.Worker, c.Address = "test", u.at, u.hands, u.served.address
	return c
}

func (u *customer) dial(c ClientConfig) {
	u.Helper()
	var err error
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	u.ns.Do(u, func() { u.Client, err = Dial(ctx, u.config(c)) })
	testenv.Must(u, err)
}

// await polls until n answers have arrived.
func (u *customer) await(n int) []Done {
	u.Helper()
	all := make([]Done, 0, n)
	one := make([]Done, n)
	for end := time.Now().Add(waitLimit); len(all) < n; {
		got, err := u.Poll(one[:n-len(all)])
		testenv.Must(u, err)
		all = append(all, one[:got]...)
		if got == 0 {
			time.Sleep(20 * time.Microsecond)
		}
		if time.Now().After(end) {
			u.Fatalf("%d of %d answers came: %+v", len(all), n, u.served.server.Stats())
		}
	}
	return all
}

// submit submits a request, as soon as there is room.
func (u *customer) submit(r Read) {
	u.Helper()
	did, err := u.Submit(r)
	testenv.Must(u, err)
	if !did {
		u.Fatal("there is no room for a request")
	}
}

// verify compares the bytes of an answer with the disk, and then overwrites them.
func (u *customer) verify(d Done) {
	u.Helper()
	if d.Err != nil {
		u.Fatalf("read %d bytes from %d: %v", d.Frame.Len, d.Offset, d.Err)
	}
	got, want := u.region.Bytes(d.Frame), u.served.content[d.Offset:]
	for i := range got {
		if got[i] != want[i] {
			u.Fatalf("read %d bytes from %d: byte %d is %#x instead of %#x", d.Frame.Len, d.Offset, i, got[i], want[i])
		}
	}
	clear(got)
}
