package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Disturbance says what a disturbed link does to frames, in both directions. Without Reorder they keep their order.
type Disturbance struct {
	Seed          uint64 // what is lost follows from it, for each direction
	Loss          float64
	Delay, Jitter time.Duration // Jitter is at most added to Delay
	Reorder       float64       // part of the frames that the next one overtakes
}

// Disturb puts a bad network between an end and its switch. The end of the test, or mend if it is called
// before, removes it, and mend returns how many frames it has carried and lost.
func (e *End) Disturb(t testing.TB, d Disturbance) (mend func() (carried, lost uint64)) {
	t.Helper()
	h, port := e.port.handle(t), e.port.link(t)
	near, far, veth := e.port.detour(t)
	n := &network{Disturbance: d, fds: [2]int{rawSocket(t, e.port), rawSocket(t, near)}}
	bridge := port.Attrs().MasterIndex
	err := errors.Join(h.LinkSetMasterByIndex(far.link(t), bridge), h.LinkSetNoMaster(port))
	for i := range n.fds {
		n.running.Go(func() { n.carry(i) })
	}
	mend = sync.OnceValues(func() (carried, lost uint64) {
		Checkf(t, errors.Join(h.LinkDel(veth), h.LinkSetMasterByIndex(port, bridge)), "remove a bad network")
		Checkf(t, n.end(), "carry frames")
		return n.carried.Load(), n.lost.Load()
	})
	t.Cleanup(func() { mend() })
	Mustf(t, err, "put a bad network at %s", e.port.Ifname)
	return mend
}

// detour makes a veth pair between a port and its bridge, and connects it to neither.
func (e *End) detour(t testing.TB) (near, far *End, veth *netlink.Veth) {
	t.Helper()
	near = &End{Namespace: e.Namespace, Ifname: "n" + e.Ifname}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = near.Ifname, e.link(t).Attrs().MTU
	veth = netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = "f"+e.Ifname, uint32(attrs.MTU)
	Mustf(t, e.handle(t).LinkAdd(veth), "make a link between %s and its bridge", e.Ifname)
	far = &End{Namespace: e.Namespace, Ifname: veth.PeerName}
	near.Index, far.Index = near.link(t).Attrs().Index, far.link(t).Attrs().Index
	near.setUp(t, near.Ifname)
	far.setUp(t, far.Ifname)
	return near, far, veth
}

// network carries frames between two interfaces.
type network struct {
	Disturbance
	fds           [2]int
	stop          atomic.Bool
	carried, lost atomic.Uint64
	running       sync.WaitGroup
	mu            sync.Mutex
	err           error
}

// frame waits until it is sent.
type frame struct {
	data []byte
	due  time.Time
}

// inNetwork is how many frames a direction of a network holds. It loses more.
const inNetwork = 4096

// carry carries frames from one interface to the other.
func (n *network) carry(from int) {
	waiting := make(chan frame, inNetwork)
	n.running.Go(func() { n.deliver(n.fds[1-from], waiting) })
	defer close(waiting)
	rnd := rand.New(rand.NewPCG(n.Seed, uint64(from)))
	var b [1 << 16]byte
	var last time.Time
	var kept []frame // at most one
	send := func(all ...frame) {
		for _, f := range all {
			select {
			case waiting <- f:
			default:
				n.lost.Add(1)
			}
		}
	}
	for !n.stop.Load() {
		k, err := unix.Read(n.fds[from], b[:])
		if err != nil {
			n.note(err)
			send(kept...) // none follows that could overtake it
			kept = kept[:0]
			continue
		}
		n.carried.Add(1)
		due := time.Now().Add(n.Delay + time.Duration(rnd.Float64()*float64(n.Jitter)))
		if rnd.Float64() < n.Loss {
			n.lost.Add(1)
			continue
		}
		if due.Before(last) {
			due = last
		}
		last = due
		f := frame{append([]byte(nil), b[:k]...), due}
		if len(kept) == 0 && n.Reorder > 0 && rnd.Float64() < n.Reorder {
			kept = append(kept, f)
			continue
		}
		send(f)
		send(kept...)
		kept = kept[:0]
	}
}

// deliver sends frames when they are due.
func (n *network) deliver(to int, waiting <-chan frame) {
	for f := range waiting {
		time.Sleep(time.Until(f.due))
		if n.stop.Load() {
			continue
		}
		if _, err := unix.Write(to, f.data); err != nil {
			n.note(err)
		}
	}
}

// note keeps an error, unless it only says that there is no frame or no room, or that an interface is down
// or gone.
func (n *network) note(err error) {
	for _, usual := range []error{unix.EAGAIN, unix.EINTR, unix.ENETDOWN, unix.ENOBUFS, unix.ENXIO, unix.ENODEV} {
		if errors.Is(err, usual) {
			return
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
	n.stop.Store(true)
}

// end stops the network.
func (n *network) end() error {
	n.stop.Store(true)
	n.running.Wait()
	return errors.Join(n.err, unix.Close(n.fds[0]), unix.Close(n.fds[1]))
}

// rawSocket opens a socket that receives all frames that arrive at an interface, and sends frames as they are.
func rawSocket(t testing.TB, e *End) (fd int) {
	t.Helper()
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8) // in network order
	e.Do(t, func() {
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err == nil {
			err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
				unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
				unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 2000}),
				unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: e.link(t).Attrs().Index}))
		}
		if err != nil {
			t.Fatal(fmt.Errorf("receive the frames of %s: %w", e.Ifname, err))
		}
	})
	return fd
}

// Limit makes the switch pass frames to an end at a rate in bits per second. Its queue has some hundred kilobytes: from
// 30 KB on it marks ECN capable packets more and more often, and drops others (RED). The kernel must have tbf and red:
// those of the lab guest do.
func (e *End) Limit(t testing.TB, rate uint64) {
	t.Helper()
	port, tc := e.port, Tool(t, "tc")
	port.Run(t, tc, "qdisc", "add", "dev", port.Ifname, "root", "handle", "1:", "tbf", "rate", fmt.Sprint(rate), "burst", "16kb", "limit", "1mb")
	port.Run(t, tc, "qdisc", "add", "dev", port.Ifname, "parent", "1:1", "handle", "2:", "red", "limit", "400000", "min", "30000", "max", "90000",
		"avpkt", "1000", "burst", "55", "bandwidth", fmt.Sprint(rate), "probability", "0.1", "ecn")
}

// Queue returns what the switch says of the queue to an end.
func (e *End) Queue(t testing.TB) string {
	t.Helper()
	return e.port.Run(t, Tool(t, "tc"), "-s", "qdisc", "show", "dev", e.port.Ifname)
}

// Shape makes the switch pass frames to an end at a rate in bits per second. Its queue holds up to a megabyte. The end of
// the test, or mend if it is called before, removes it.
func (e *End) Shape(t testing.TB, rate uint64) (mend func()) {
	t.Helper()
	port, tc := e.port, Tool(t, "tc")
	port.Run(t, tc, "qdisc", "add", "dev", port.Ifname, "root", "tbf", "rate", fmt.Sprint(rate), "burst", "16kb", "limit", "1mb")
	mend = sync.OnceFunc(func() { port.Run(t, tc, "qdisc", "del", "dev", port.Ifname, "root") })
	t.Cleanup(mend)
	return mend
}
