package cm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// node is the device file of the kernel's module.
const node = "/dev/infiniband/rdma_cm"

// Channel is a Manager that uses the kernel's rdma_cm, in the network namespace in which it was
// opened.
type Channel struct {
	file *os.File
	raw  syscall.RawConn
	mu   sync.Mutex
	ids  map[uint64]*identifier
	last uint64 // the last uid assigned
	over error  // why no more events arrive
	done chan struct{}
}

var _ Manager = (*Channel)(nil)

// Open opens a channel. The caller closes it. If the kernel has no rdma_cm for programs the error
// is rdma.ErrUnsupported, and says how to get it.
func Open() (*Channel, error) {
	file, err := os.OpenFile(node, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, openError(err)
	}
	c := &Channel{file: file, ids: make(map[uint64]*identifier), done: make(chan struct{})}
	if c.raw, err = file.SyscallConn(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	go c.run()
	return c, nil
}

func openError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("open %s: %w by the running kernel: load its module (modprobe rdma_ucm)", node, rdma.ErrUnsupported)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (give the user access to it, or run as root)", err)
	}
	return err
}

// run receives events from the kernel until the channel is closed.
func (c *Channel) run() {
	defer close(c.done)
	for {
		e, err := c.next()
		if err != nil {
			c.end(err)
			return
		}
		c.deliver(e)
	}
}

// next waits for an event.
func (c *Channel) next() (e event, err error) {
	var failed error
	err = c.raw.Read(func(fd uintptr) bool {
		var command getEvent
		var answer reported
		failed = ask(int(fd), cmdEvent, &command, &command.response, &answer)
		e = eventOf(&answer)
		return failed != unix.EAGAIN
	})
	if err == nil && failed != nil {
		err = refusal("take an event of rdma_cm", failed)
	}
	return e, err
}

// deliver passes an event to its identifier. Events of destroyed identifiers are dropped, and a
// request for one is refused.
func (c *Channel) deliver(e event) {
	c.mu.Lock()
	i := c.ids[e.uid]
	c.mu.Unlock()
	switch {
	case i != nil:
		i.happens(e)
	case e.kind == ConnectRequest:
		_ = c.destroy(e.id)
	}
}

// end tells all identifiers that no more events arrive.
func (c *Channel) end(err error) {
	c.mu.Lock()
	c.over = err
	c.mu.Unlock()
	for _, i := range c.all() {
		i.finish(err)
	}
}

func (c *Channel) all() (all []*identifier) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.ids {
		all = append(all, i)
	}
	return all
}

// do calls f with the descriptor, which stays open until f returns.
func (c *Channel) do(f func(fd int) error) error {
	var failed error
	if err := c.raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func (c *Channel) destroy(id uint32) error {
	return c.do(func(fd int) error {
		var answer handle
		command := destroy{id: id}
		return ask(fd, cmdDestroy, &command, &command.response, &answer)
	})
}

// Open returns the number of identifiers: routes, listeners, requests and connections that are not
// closed.
func (c *Channel) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}

// Close ends everything that was made from the channel. The kernel informs connected peers and
// refuses open requests. Queue pairs are not closed.
func (c *Channel) Close() error {
	var errs []error
	for _, i := range c.all() {
		errs = append(errs, i.close())
	}
	if err := c.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		errs = append(errs, err)
	}
	<-c.done
	return errors.Join(errs...)
}
