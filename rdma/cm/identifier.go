package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/unifiedd/unifiedd/rdma"
)

// identifier is an rdma_cm identifier: of a connection in any state, or of a listener.
type identifier struct {
	channel  *Channel
	id       uint32 // the kernel's
	uid      uint64
	answers  chan event // the event that the current step waits for
	requests chan event // nil: it does not listen
	done     chan struct{}
	once     sync.Once // for done

	mu     sync.Mutex
	queue  rdma.QueuePair // of Connect or Accept
	cause  error          // why it has ended
	closed bool
	failed error // of close
}

// newIdentifier makes an identifier in the kernel.
func (c *Channel) newIdentifier(backlog int) (*identifier, error) {
	i := c.number()
	if backlog > 0 {
		i.requests = make(chan event, backlog)
	}
	var answer handle
	err := c.do(func(fd int) error {
		command := create{uid: i.uid, space: spaceTCP, transport: uint8(rdma.RC)}
		return ask(fd, cmdCreate, &command, &command.response, &answer)
	})
	if err != nil {
		return nil, refusal("make an identifier of rdma_cm", err)
	}
	return i, c.register(i, answer.id)
}

func (c *Channel) number() *identifier {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return &identifier{channel: c, uid: c.last, answers: make(chan event, 1), done: make(chan struct{})}
}

// register makes the events of the kernel's identifier arrive at ours.
func (c *Channel) register(i *identifier, id uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	i.id = id
	if c.over != nil { // its end has destroyed the kernel's identifier
		return fmt.Errorf("rdma_cm: the channel is %w", ErrClosed)
	}
	c.ids[i.uid] = i
	return nil
}

func (c *Channel) forget(i *identifier) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ids, i.uid)
}

// happens processes an event. The channel's goroutine calls it; it must not block.
func (i *identifier) happens(e event) {
	switch e.kind {
	case ConnectRequest:
		i.come(e)
	case Disconnected, DeviceRemoval:
		why := e.failure("connection")
		i.note(why) // before any request is flushed
		i.leave()
		i.finish(why)
	case AddressChange, TimewaitExit, MulticastJoin, MulticastError:
	default:
		select {
		case i.answers <- e:
		default: // no call waits for the step now
		}
	}
}

// come queues a request, or refuses it if the listener's backlog is full.
func (i *identifier) come(e event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.closed {
		select {
		case i.requests <- e:
			return
		default:
		}
	}
	_ = i.channel.destroy(e.id)
}

// note records why the connection has ended. Only the first reason counts.
func (i *identifier) note(why error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cause == nil {
		i.cause = why
	}
}

// finish ends it.
func (i *identifier) finish(why error) {
	i.note(why)
	i.once.Do(func() { close(i.done) })
}

// leave flushes outstanding requests of the queue pair, and informs or answers the peer. It does
// nothing if the queue pair or the connection is already gone.
func (i *identifier) leave() {
	i.mu.Lock()
	queue := i.queue
	i.mu.Unlock()
	if queue == nil {
		return
	}
	_ = queue.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState)
	_ = i.channel.do(func(fd int) error { return order(fd, cmdDisconnect, &disconnect{id: i.id}) })
}

// wait waits for the end of a step.
func (i *identifier) wait(ctx context.Context, step string, want ...EventKind) (event, error) {
	select {
	case e := <-i.answers:
		for _, kind := range want {
			if e.kind == kind && e.status == 0 {
				return e, nil
			}
		}
		return e, e.failure(step)
	case <-i.done:
		return event{}, fmt.Errorf("%s: %w", step, i.why())
	case <-ctx.Done():
		return event{}, fmt.Errorf("%s: %w", step, context.Cause(ctx))
	}
}

// why returns nil until it has ended.
func (i *identifier) why() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if errors.Is(i.cause, os.ErrClosed) {
		return ErrClosed
	}
	return i.cause
}

// close destroys the kernel's identifier, once. This ends a connection and informs the peer.
func (i *identifier) close() error {
	i.finish(ErrClosed)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return i.failed
	}
	i.closed = true
	i.refuseAll()
	if err := i.channel.destroy(i.id); err != nil && !errors.Is(err, os.ErrClosed) {
		i.failed = refusal("destroy an identifier of rdma_cm", err)
	}
	i.channel.forget(i)
	return i.failed
}

// refuseAll refuses the requests that were not accepted.
func (i *identifier) refuseAll() {
	for {
		select {
		case e := <-i.requests:
			_ = i.channel.destroy(e.id)
		default:
			return
		}
	}
}

// place queries the device and the addresses.
func (i *identifier) place() (DeviceAddress, error) {
	var answer queried
	err := i.channel.do(func(fd int) error {
		command := query{id: i.id, option: queryAddress}
		return ask(fd, cmdQuery, &command, &command.response, &answer)
	})
	if err != nil {
		return DeviceAddress{}, refusal("ask rdma_cm for the device", err)
	}
	p := DeviceAddress{Port: answer.port, Local: answer.local.addrPort(), Remote: answer.peer.addrPort()}
	if answer.guid != [8]uint8{} {
		p.Device, err = deviceOf(answer.guid)
	}
	return p, err
}

// DeviceAddress is the device and the addresses of a connection.
type DeviceAddress struct {
	// Device is the RDMA device's name in /sys/class/infiniband. The queue pair must be made with it.
	Device        string
	Port          uint8 // of the device
	Local, Remote netip.AddrPort
}

func (p DeviceAddress) String() string {
	return fmt.Sprintf("%v to %v over %s port %d", p.Local, p.Remote, p.Device, p.Port)
}

const class = "/sys/class/infiniband"

// deviceOf finds a device by its GUID.
func deviceOf(guid [8]uint8) (string, error) {
	want := fmt.Sprintf("%x:%x:%x:%x", guid[0:2], guid[2:4], guid[4:6], guid[6:8])
	names, _ := filepath.Glob(class + "/*/node_guid")
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(b)) == want {
			return filepath.Base(filepath.Dir(name)), nil
		}
	}
	return "", fmt.Errorf("find the RDMA device with the GUID %s: %w", want, ErrDeviceGone)
}
