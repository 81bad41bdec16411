package attach

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// Port is the rings between a flow and a program. It belongs to the worker's thread, except where it says
// otherwise.
type Port struct {
	number  uint32
	session uint64
	from    uint64 // sequence with which the program goes on, if the flow does not know the session; 0: 1
	memory  []byte
	rings   [wire.Rings]*wire.Ring
	wake    int // this side's end of the socket pair

	slept   bool          // this side has said that it waits
	failure atomic.Uint32 // the first wire.Reason why the program must end
	failed  chan struct{} // closed with it
	once    sync.Once
}

// portFiles are what the program gets of a port.
type portFiles struct{ rings, wake *os.File }

func (f *portFiles) close() error { return errors.Join(f.rings.Close(), f.wake.Close()) }

// newPort makes the rings of a port. The memory is on ordinary pages, locked: the program may take pages away, and
// the kernel then replaces them at the next access.
func newPort(number uint32, session uint64, entries uint32) (p *Port, f *portFiles, err error) {
	size := int(wire.PortLen(entries)+pageSize-1) &^ (pageSize - 1)
	fd, err := unix.MemfdCreate("unifiedd-port", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("create the memory of a port: %w", err)
	}
	f = &portFiles{rings: os.NewFile(uintptr(fd), "unifiedd-port")}
	p = &Port{number: number, session: session, wake: -1, failed: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.rings.Close(), p.free())
		}
	}()
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, nil, fmt.Errorf("size the memory of a port: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return nil, nil, fmt.Errorf("seal the memory of a port: %w", err)
	}
	if p.memory, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return nil, nil, fmt.Errorf("map the memory of a port: %w", err)
	}
	if err := unix.Mlock(p.memory); err != nil {
		return nil, nil, fmt.Errorf("lock the memory of a port: %w (raise LimitMEMLOCK)", err)
	}
	for n := range p.rings {
		p.rings[n] = wire.NewRing(p.memory, n, entries, true)
	}
	ends, err := wakeSockets()
	if err != nil {
		return nil, nil, fmt.Errorf("make the wake sockets of a port: %w", err)
	}
	p.wake = ends[0]
	f.wake = os.NewFile(uintptr(ends[1]), "unifiedd-wake")
	return p, f, nil
}

// wakeSockets makes a pair of sockets over which one side wakes the other by a byte. What one side does to its end must not
// keep the other side busy. So they are of type SOCK_DGRAM: when one end of such a pair is shut down or closed, the other
// one does not become readable (unix_shutdown in net/unix/af_unix.c). From Linux 6.16 on they take no descriptors: see drain.
func wakeSockets() (ends [2]int, err error) {
	if ends, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return ends, err
	}
	for _, fd := range ends {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, soPassRights, 0) // older kernels lack it
	}
	return ends, nil
}

const (
	soPassRights = 83 // SO_PASSRIGHTS, which golang.org/x/sys lacks
	// mostWakes is how many wakes one drain takes. The other side may send more, and faster than this one reads.
	mostWakes = 16
)

// drain takes what has woken this side off its wake socket. What is left wakes it again. It reports whether the other side
// has broken the rules by sending descriptors. They are closed on a goroutine of their own, because that may take as long as
// the other side likes: a socket with SO_LINGER, a file of FUSE. A read without room for them would wait for it.
func drain(fd int) (rights bool) {
	var b [1]byte
	var oob [rightsRoom]byte
	for range mostWakes {
		_, n, _, _, err := unix.Recvmsg(fd, b[:], oob[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if n > 0 {
			go closeAll(descriptors(oob[:n]))
			return true
		}
		if err != nil {
			return false
		}
	}
	return false
}

const pageSize = 4096

// free gives the memory and the socket back. The worker's thread does not use the port any more.
func (p *Port) free() error {
	var errs []error
	if p.memory != nil {
		errs = append(errs, unix.Munmap(p.memory))
		p.memory = nil
	}
	if p.wake >= 0 {
		errs = append(errs, unix.Close(p.wake))
		p.wake = -1
	}
	return errors.Join(errs...)
}

// fail ends the program's connection for a reason. The first one counts. Any goroutine may call it.
func (p *Port) fail(why wire.Reason) {
	p.once.Do(func() {
		p.failure.Store(uint32(why))
		close(p.failed)
	})
}

// broken reports whether the program must end: its rings are not looked at any more.
func (p *Port) broken() bool { return p.failure.Load() != 0 }

// why returns why the program must end, once failed is closed.
func (p *Port) why() wire.Reason { return wire.Reason(p.failure.Load()) }

// take copies up to len(dst) entries of a ring to the daemon.
func (p *Port) take(ring int, dst []wire.Entry) int {
	r := p.rings[ring]
	n, ok := r.Waiting()
	if !ok {
		p.fail(wire.BadIndex)
		return 0
	}
	n = min(n, len(dst))
	for i := range dst[:n] {
		dst[i] = r.Get()
	}
	r.Advance()
	return n
}

// room returns how many entries a ring to the program has room for.
func (p *Port) room(ring int) int {
	n, ok := p.rings[ring].Room()
	if !ok {
		p.fail(wire.BadIndex)
		return 0
	}
	return n
}

// publish makes what was put into a ring visible, and wakes the program if it waits for that.
func (p *Port) publish(ring int) {
	if p.rings[ring].Publish() {
		// EAGAIN: the socket is readable already. Any other error is the program's, whose end is noticed elsewhere.
		_ = unix.Send(p.wake, wakeByte[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
}

var wakeByte = [1]byte{1}

// sleep says that this side waits for a ring, and reports whether it may: nothing has come meanwhile.
func (p *Port) sleep(ring int) bool {
	r := p.rings[ring]
	r.Sleep()
	p.slept = true
	n, ok := r.Waiting()
	return ok && n == 0
}

// awake ends sleep.
func (p *Port) awake(ring int) {
	if !p.slept {
		return
	}
	p.slept = false
	p.rings[ring].Awake()
	if drain(p.wake) {
		p.fail(wire.BadDescriptor)
	}
}
