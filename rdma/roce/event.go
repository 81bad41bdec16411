package roce

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// signal is an eventfd(2): it polls readable from a call of signal until one of taken.
type signal struct {
	fd     int
	raised atomic.Bool // it may be readable: a program asks far more often than it is
	count  [8]byte     // as read by taken
}

func newSignal() (signal, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return signal{fd: -1}, fmt.Errorf("make an event descriptor: %w", err)
	}
	return signal{fd: fd}, nil
}

var one = binary.NativeEndian.AppendUint64(nil, 1)

// signal makes it readable. It fails only if it is already, or closed.
func (s *signal) signal() {
	s.raised.Store(true) // before the write: while it is readable, taken reads
	_, _ = unix.Write(s.fd, one)
}

// taken returns how often it was signalled since the last call. One thread at a time calls it.
func (s *signal) taken() (int, error) {
	if !s.raised.Load() {
		return 0, nil
	}
	s.raised.Store(false)
	switch _, err := unix.Read(s.fd, s.count[:]); err {
	case nil:
		return int(binary.NativeEndian.Uint64(s.count[:])), nil
	case unix.EAGAIN: // signal may be about to write
		s.raised.Store(true)
		return 0, nil
	default:
		return 0, fmt.Errorf("read an event descriptor: %w", err)
	}
}

func (s *signal) close() error {
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	if err != nil {
		return fmt.Errorf("close an event descriptor: %w", err)
	}
	return nil
}

// events holds the asynchronous events that the program has not taken.
type events struct {
	mu     sync.Mutex
	queue  []rdma.Event
	signal signal
}

// maxEvents bounds the events kept for a program that takes none. Later ones are lost.
const maxEvents = 4096

func (e *events) add(more ...rdma.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) == 0 {
		e.signal.signal()
	}
	e.queue = append(e.queue, more[:min(len(more), maxEvents-len(e.queue))]...)
}

func (e *events) next() (rdma.Event, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) == 0 {
		return rdma.Event{}, false
	}
	first := e.queue[0]
	if e.queue = e.queue[1:]; len(e.queue) == 0 {
		e.queue = nil
		_, _ = e.signal.taken()
	}
	return first, true
}
