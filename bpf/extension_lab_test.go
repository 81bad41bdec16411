package bpf

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/dispatcher"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// find looks for the dispatcher at the end.
func find(t *testing.T, end *testenv.End) (d *dispatcher.Interface) {
	t.Helper()
	var err error
	end.Do(t, func() { d, err = dispatcher.Find(end.Index) })
	if err != nil || d == nil {
		t.Fatalf("found %v, %v", d, err)
	}
	return d
}

// joined loads a program, which joins the dispatcher at the end.
func joined(t *testing.T, end *testenv.End, c Config) *Program {
	t.Helper()
	c.Dispatcher = find(t, end)
	p := mustLoad(t, c)
	testenv.Must(t, attachTo(t, p, end, Any))
	return p
}

// to returns n packets to a port.
func to(pair *testenv.Pair, port uint16, n int) (frames [][]byte) {
	for i := range n {
		frames = append(frames, testenv.UDP(&pair.A, &pair.B, port, uint64(i), 100))
	}
	return frames
}

// TestDispatchedBesideOthers: the socket receives our packets. Packets that another program drops reach
// neither socket nor kernel. The kernel receives all others. This also holds after the selection has changed,
// and after our program has left.
func TestDispatchedBesideOthers(t *testing.T) {
	labenv.Guest(t)
	for _, generic := range []bool{false, true} {
		t.Run(map[bool]string{false: "driver", true: "generic"}[generic], func(t *testing.T) { dispatchedBesideOthers(t, generic) })
	}
}

func dispatchedBesideOthers(t *testing.T, generic bool) {
	testenv.Leaks(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	others := testenv.NewLibxdp(t, &pair.B)
	testenv.Must(t, others.TryLoad(t, generic, testenv.OtherPass, testenv.OtherDeny))
	before := len(others.Pins(t))
	p := joined(t, &pair.B, Config{Filter: mustParse(t, "udp port 7 or udp port 9"), Timestamps: true, Priority: 50})
	if got, want := p.Mode() == Generic, generic; got != want {
		t.Errorf("generic mode: %v, want %v", got, want)
	}
	socket := newXSK(t, &pair.B, 0)
	testenv.Must(t, p.SetSocketOf(0, 0, socket.fd))
	if got, want := others.Names(t), []string{testenv.OtherDeny, testenv.OtherPass, "unifiedd_capture"}; !slices.Equal(got, want) {
		t.Errorf("in the dispatcher are %v, want %v", got, want)
	}
	send := func() {
		testenv.SendRaw(t, &pair.A, slices.Concat(to(pair, 7, 20), to(pair, 8, 30), to(pair, 9, 50)), testenv.SendOptions{})
	}
	counted := func(denied, passed uint64) {
		t.Helper()
		testenv.Wait(t, 10*time.Second, "what others count", func() bool {
			return others.Count(t, testenv.OtherDeny) >= denied && others.Count(t, testenv.OtherPass) >= passed
		})
		if d, n := others.Count(t, testenv.OtherDeny), others.Count(t, testenv.OtherPass); d != denied || n != passed {
			t.Errorf("others dropped %d and let %d pass, want %d and %d", d, n, denied, passed)
		}
	}
	send()
	counted(50, 50)
	if got := awaitTotal(t, p, 50); got[Redirected].Packets != 20 || got[NoMatch].Packets != 30 {
		t.Errorf("counters %+v", got)
	}
	if packets, _ := socket.received(); len(packets) != 20 || !slices.Equal(packets[0], to(pair, 7, 1)[0]) {
		t.Errorf("%d packets in the ring, want 20", len(packets))
	}
	testenv.Must(t, p.Replace(mustParse(t, "udp port 8")))
	send()
	counted(100, 100)
	if got := awaitTotal(t, p, 100); got[Redirected].Packets != 50 || got[NoMatch].Packets != 50 {
		t.Errorf("counters with another selection %+v", got)
	}
	id := ebpf.ProgramID(others.Status(t)[2].ID)
	testenv.Must(t, p.Close())
	send()
	counted(150, 150)
	if pins := others.Pins(t); len(pins) != before {
		t.Errorf("%d pins are left, there were %d: %v", len(pins), before, pins)
	}
	testenv.Wait(t, 10*time.Second, "our program to go", func() bool {
		program, err := ebpf.NewProgramFromID(id)
		_ = program.Close()
		return err != nil
	})
}

// TestDispatchedUnstamped: where libxdp's own dispatchers call no programs that change packets, ours writes
// no timestamps and reports that, so that libxdp's tools keep working with it. Elsewhere it writes
// timestamps.
func TestDispatchedUnstamped(t *testing.T) {
	labenv.Guest(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	others := testenv.NewLibxdp(t, &pair.B)
	others.Load(t, testenv.OtherPass)
	p := joined(t, &pair.B, Config{Timestamps: true})
	socket := newXSK(t, &pair.B, 0)
	testenv.Must(t, p.SetSocketOf(0, 0, socket.fd))
	start := now(t)
	testenv.SendRaw(t, &pair.A, to(pair, 7, 5), testenv.SendOptions{})
	awaitTotal(t, p, 5)
	packets, stamps := socket.received()
	if len(packets) != 5 {
		t.Fatalf("%d packets, want 5", len(packets))
	}
	t.Logf("unstamped: %v", p.Unstamped())
	if p.MetaRefused() != p.Unstamped() {
		t.Errorf("metadata refused %v, unstamped %v", p.MetaRefused(), p.Unstamped())
	}
	if stamped := stamps[0] >= start; stamped == p.Unstamped() {
		t.Errorf("stamped %v, unstamped %v", stamped, p.Unstamped())
	}
	others.Load(t, testenv.OtherDeny)
	if id, err := p.Dispatched(); id == 0 || err != nil {
		t.Errorf("in dispatcher %d: %v", id, err)
	}
}

// TestDispatchedDead: a rule drops packets only while there are sockets, and so no longer than the process
// lives.
func TestDispatchedDead(t *testing.T) {
	labenv.Guest(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	others := testenv.NewLibxdp(t, &pair.B)
	others.Load(t, testenv.OtherPass)
	p := joined(t, &pair.B, Config{Rules: []Rule{{Name: "all", Action: Drop}}})
	socket := newXSK(t, &pair.B, 0)
	testenv.Must(t, p.SetSocketOf(0, 0, socket.fd))
	testenv.SendRaw(t, &pair.A, to(pair, 7, 5), testenv.SendOptions{})
	if got := awaitTotal(t, p, 5); got[Dropped].Packets != 5 {
		t.Errorf("counters %+v", got)
	}
	if err := p.ClearSocketOf(0, 0); err != nil { // as the kernel does when its process ends
		t.Fatal(err)
	}
	testenv.SendRaw(t, &pair.A, to(pair, 7, 5), testenv.SendOptions{})
	if got := awaitTotal(t, p, 10); got[NoSocket].Packets != 5 || got[Dropped].Packets != 5 {
		t.Errorf("counters without a socket %+v", got)
	}
}

// TestDispatchedFragments: the dispatcher accepts packets of several buffers only if all of its programs do.
// So a large MTU excludes programs that do not. xdp-loader never declares this for its own programs. When it
// exchanges the dispatcher, it keeps the declaration of ours.
func TestDispatchedFragments(t *testing.T) {
	labenv.Guest(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	others := testenv.NewLibxdp(t, &pair.B)
	others.Load(t, testenv.OtherDeny)
	first := joined(t, &pair.B, Config{MultiBuffer: true})
	others.Unload(t, testenv.OtherDeny)
	lengthen(t, pair, first)
	before := others.Pins(t)
	p := mustLoad(t, Config{Dispatcher: find(t, &pair.B)})
	err := attachTo(t, p, &pair.B, Any)
	if !errors.Is(err, ErrDriverRefused) || !strings.Contains(err.Error(), "lower the MTU") {
		t.Errorf("without multi-buffer: %v", err)
	}
	if err := others.TryLoad(t, false, testenv.OtherDeny); err == nil {
		t.Error("xdp-loader loads a program as one that takes packets of several buffers")
	}
	if after := others.Pins(t); !slices.Equal(after, before) {
		t.Errorf("pins are %v, were %v", after, before)
	}
	second := joined(t, &pair.B, Config{MultiBuffer: true})
	if got := others.Names(t); len(got) != 2 {
		t.Errorf("there are %v", got)
	}
	testenv.SendRaw(t, &pair.A, [][]byte{testenv.UDP(&pair.A, &pair.B, 7, 0, 8000)}, testenv.SendOptions{})
	for _, p := range []*Program{first, second} {
		if got := awaitTotal(t, p, 1); got[NoSocket].Bytes < 8000 {
			t.Errorf("counters %+v", got)
		}
	}
}

// lengthen gives both ends an MTU of 9000. It takes the dispatcher off the interface for the change and puts
// it back: veth of Linux 6.12, unlike 7, keeps the limit that it set for the earlier program.
func lengthen(t *testing.T, pair *testenv.Pair, p *Program) {
	t.Helper()
	id, err := p.Dispatched()
	testenv.Must(t, err)
	d, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	testenv.Must(t, err)
	defer d.Close()
	put := func(fd int) {
		t.Helper()
		pair.B.Do(t, func() {
			l, err := netlink.LinkByIndex(pair.B.Index)
			if err == nil {
				err = netlink.LinkSetXdpFdWithFlags(l, fd, unix.XDP_FLAGS_DRV_MODE)
			}
			testenv.Must(t, err)
		})
	}
	put(-1)
	for _, end := range []*testenv.End{&pair.A, &pair.B} {
		if out, err := end.Command("ip", "link", "set", end.Ifname, "mtu", "9000").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	put(d.FD())
}

// TestDispatchedMode: attaching in another mode than the dispatcher's is an error.
func TestDispatchedMode(t *testing.T) {
	labenv.Guest(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	others := testenv.NewLibxdp(t, &pair.B)
	others.Load(t, testenv.OtherPass)
	p := mustLoad(t, Config{Dispatcher: find(t, &pair.B)})
	if err := attachTo(t, p, &pair.B, Generic); !errors.Is(err, ErrOtherMode) {
		t.Errorf("in generic mode: %v", err)
	}
}
