package cm

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// conn implements Conn.
type conn struct {
	identifier *identifier
	place      DeviceAddress
	private    []byte
}

// newConn passes a queue pair to the channel's goroutine, which puts it into ERR at the end of the
// connection. An iWARP device has already changed the queue pair's state; querying the state makes
// its driver notice.
func newConn(i *identifier, p DeviceAddress, q rdma.QueuePair, private []byte) (Conn, error) {
	if _, err := q.State(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	i.queue = q
	i.mu.Unlock()
	select {
	case <-i.done: // it ended before the goroutine could see the queue pair
		i.leave()
	default:
	}
	return &conn{identifier: i, place: p, private: private}, nil
}

func (i *identifier) isLed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.queue != nil
}

func (c *conn) Private() []byte { return c.private }

func (c *conn) Address() DeviceAddress { return c.place }

func (c *conn) Done() <-chan struct{} { return c.identifier.done }

func (c *conn) Err() error { return c.identifier.why() }

// disconnectTimeout is how long Close waits for the peer's answer.
const disconnectTimeout = time.Second

// Close waits at most a second for the peer's answer.
func (c *conn) Close() error {
	i := c.identifier
	select {
	case <-i.done:
	default:
		i.note(ErrClosed)
		i.leave()
		timer := time.NewTimer(disconnectTimeout)
		defer timer.Stop()
		select {
		case <-i.done:
		case <-timer.C:
		}
	}
	return i.close()
}

// End is our side of a connection. A zero field means zero, and not a default: begin with Defaults.
type End struct {
	Queue rdma.QueuePair // RC, in INIT: see Prepare
	// Reads is how many of our READs and atomics may be outstanding, RemoteReads how many of the peer's. The peer may allow
	// fewer. The device must support them.
	Reads, RemoteReads uint8
	Retries            uint8 // at most 7, before RetryExceeded; the side that connects sets it for both
	RNRRetries         uint8 // at most 7; 7: no limit
	MinRNRTimer        uint8 // how long senders to us wait after receiver-not-ready
	// Timeout is the timeout for an ACK, 4.096 µs << Timeout; 0: the kernel chooses.
	Timeout uint8
	// Private is for the peer's program: at most MostToConnect, MostToAccept or MostToReject bytes.
	Private []byte
}

// The longest private data over InfiniBand and RoCE. iWARP has more.
const (
	MostToConnect = 56
	MostToAccept  = 196
	MostToReject  = 148
)

// Defaults returns the same values as package connect: a timeout of 67 ms for an ACK with six
// retries, and six retries of 0.64 ms after receiver-not-ready. Any device supports one outstanding
// READ.
func Defaults(q rdma.QueuePair) End {
	return End{Queue: q, Reads: 1, RemoteReads: 1, Retries: 6, RNRRetries: 6, MinRNRTimer: 12, Timeout: 14}
}

// Check is for managers. It refuses values that no connection can have.
func (e *End) Check() error {
	switch {
	case e.Queue == nil || e.Queue.Config().Transport != rdma.RC:
		return fmt.Errorf("rdma_cm connects RC queue pairs: %w with others", rdma.ErrUnsupported)
	case e.Retries > 7 || e.RNRRetries > 7:
		return fmt.Errorf("%d and %d retries: at most 7", e.Retries, e.RNRRetries)
	case e.Timeout > 31 || e.MinRNRTimer > 31:
		return fmt.Errorf("timeout %d, timer %d: at most 31", e.Timeout, e.MinRNRTimer)
	}
	return nil
}

// parameters returns the parameters for the kernel.
func (e *End) parameters() (p parameters, err error) {
	if err := e.Check(); err != nil {
		return p, err
	}
	p = parameters{qpn: e.Queue.QPN(), reads: e.Reads, remoteReads: e.RemoteReads, retries: e.Retries, rnrRetries: e.RNRRetries, valid: 1}
	if e.Queue.Config().Shared != nil {
		p.shared = 1
	}
	p.length, err = private(&p.private, e.Private)
	return p, err
}

// private copies private data into a command.
func private(to *[most + 1]uint8, data []byte) (uint8, error) {
	if len(data) > most {
		return 0, fmt.Errorf("private data of %d bytes: at most %d", len(data), most)
	}
	copy(to[:], data)
	return uint8(len(data)), nil
}

// known are the attributes that this package sets.
const known = rdma.MaskState | rdma.MaskAccess | rdma.MaskPKeyIndex | rdma.MaskPort | rdma.MaskAddress | rdma.MaskPathMTU | rdma.MaskTimeout |
	rdma.MaskRetries | rdma.MaskRNRRetries | rdma.MaskReceivePSN | rdma.MaskMaxReads | rdma.MaskMinRNRTimer | rdma.MaskSendPSN |
	rdma.MaskMaxRemoteReads | rdma.MaskRemoteQPN

// attributes queries the attributes for changing a queue pair to a state.
func (i *identifier) attributes(to rdma.State) (rdma.Attributes, rdma.Mask, error) {
	var s state
	err := i.channel.do(func(fd int) error {
		command := attributes{id: i.id, state: uint32(to)}
		return ask(fd, cmdAttributes, &command, &command.response, &s)
	})
	if err != nil {
		return rdma.Attributes{}, 0, refusal(fmt.Sprintf("ask rdma_cm how to lead a queue pair to %v", to), err)
	}
	a := rdma.Attributes{State: to, PKeyIndex: s.pkey, Port: s.port, Address: s.address.of(), PathMTU: rdma.MTU(s.mtu),
		Timeout: s.timeout, Retries: s.retries, RNRRetries: s.rnrRetries, MinRNRTimer: s.minRNR, SendPSN: s.sendPSN, ReceivePSN: s.receivePSN,
		RemoteQPN: s.qpn, MaxReads: s.reads, MaxRemoteReads: s.remoteReads}
	return a, rdma.Mask(s.mask)&known | rdma.MaskState, nil
}

func (p *path) of() rdma.Address {
	a := rdma.Address{LID: p.lid, SL: p.sl, PathBits: p.pathBits, StaticRate: p.staticRate, Port: p.port}
	if p.global != 0 {
		a.GID, a.GIDIndex, a.HopLimit, a.TrafficClass, a.FlowLabel = p.gid, uint16(p.index), p.hops, p.class, p.flow
	}
	return a
}

// prepare brings a queue pair to INIT. iWARP has no P_Keys, and its devices ignore the index.
func (i *identifier) prepare(q rdma.QueuePair, access rdma.Access) error {
	a, given, err := i.attributes(rdma.Init)
	if err != nil {
		return err
	}
	a.Access = access & rdma.Remote
	return change(q, a, given|rdma.MaskAccess|rdma.MaskPKeyIndex)
}

// lead brings a queue pair from INIT to RTS, with the values that both sides have announced. An
// iWARP device does that itself when it is connected, and the kernel has no path for it.
func (i *identifier) lead(e *End, s said) error {
	a, given, err := i.attributes(rdma.ReadyToReceive)
	if err != nil {
		return err
	}
	if given&rdma.MaskAddress == 0 {
		return nil
	}
	a.MaxRemoteReads, a.MinRNRTimer = min(e.RemoteReads, s.remoteReads), e.MinRNRTimer
	if err := change(e.Queue, a, given); err != nil {
		return err
	}
	if a, given, err = i.attributes(rdma.ReadyToSend); err != nil {
		return err
	}
	a.MaxReads = min(e.Reads, s.reads)
	if e.Timeout != 0 {
		a.Timeout = e.Timeout
	}
	return change(e.Queue, a, given)
}

func change(q rdma.QueuePair, a rdma.Attributes, given rdma.Mask) error {
	if err := q.Modify(a, given); err != nil {
		return fmt.Errorf("bring queue pair %d to %v: %w", q.QPN(), a.State, err)
	}
	return nil
}
