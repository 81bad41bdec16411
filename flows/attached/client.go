package attached

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// DefaultSocket is where a daemon listens for programs unless its configuration says otherwise.
const DefaultSocket = "/run/unifiedd/attach.sock"

// Config says where and as what to attach.
type Config struct {
	Socket string // of the daemon; empty: DefaultSocket
	Name   string // of the program in the daemon's configuration
	// Session identifies the messages of this program: a flow takes each sequence of a session once. A program
	// that keeps it over its own restarts goes on where the flow's log ends for it. 0: a random one.
	Session uint64
}

// ErrGone says that the daemon has ended, or has ended the connection. Wait attaches again. What was received or
// claimed before stays mapped until it is released, committed or discarded.
var ErrGone = errors.New("the daemon is gone")

// RefusedError is the daemon's refusal. Its Reason is one word of the daemon's documentation, such as
// not_permitted.
type RefusedError struct{ Reason, Text string }

func (e *RefusedError) Error() string { return e.Reason + ": " + e.Text }

// Client is a program that is attached to a daemon.
type Client struct {
	config Config

	mu   sync.Mutex // held while it attaches or opens a port
	link *link      // the newest connection; nil: closed
	old  []*link    // earlier ones whose memory is still used
	last error      // why the last attempt failed
	next time.Time  // of the next attempt
	wait time.Duration
}

// link is one connection, with the memory that came over it.
type link struct {
	conn    *net.UnixConn
	in, out []byte
	frame   uint32
	boot    uint64
	answers chan any // to an Open or a Close
	gone    chan struct{}
	why     error // once gone is closed

	users int // openings that use its memory; under Client.mu

	mu    sync.Mutex                               // guards the fields below
	ports map[uint32]*atomic.Pointer[RefusedError] // where a port learns that the daemon has closed it
	early map[uint32]*RefusedError                 // ports that were closed before they were known
	ended map[uint32]struct{}                      // ports that this program has closed: the daemon confirms it
	// waiters are the waits that end when a port or the connection does.
	waiters map[*waiter]struct{}
}

// Attach attaches to the daemon, and maps the program's memory. One process at a time has a name. The error is one of
// the socket, such as fs.ErrNotExist if no daemon runs, or a *RefusedError: bad_name, not_permitted, busy. It waits at
// most 15 s for the daemon. The caller closes the client.
func Attach(c Config) (*Client, error) {
	c.Socket = cmp.Or(c.Socket, DefaultSocket)
	for c.Session == 0 {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return nil, fmt.Errorf("draw a session: %w", err)
		}
		c.Session = binary.NativeEndian.Uint64(b[:])
	}
	k := &Client{config: c}
	var err error
	if k.link, err = attach(&c); err != nil {
		return nil, fmt.Errorf("attach to %s as %s: %w", c.Socket, c.Name, err)
	}
	return k, nil
}

// Session returns the session of the client's messages.
func (k *Client) Session() uint64 { return k.config.Session }

// Close ends the connection. What the program has received and not released, and what it has not sent, is the
// daemon's again. All ports must be closed before.
func (k *Client) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.link == nil {
		return nil
	}
	err := k.link.conn.Close()
	<-k.link.gone
	for _, l := range append(k.old, k.link) {
		err = errors.Join(err, l.unmap())
	}
	k.link, k.old = nil, nil
	return err
}

// use says that an opening uses the memory of a connection.
func (k *Client) use(l *link) {
	k.mu.Lock()
	l.users++
	k.mu.Unlock()
}

// unuse says that an opening does not use the memory of a connection any more. Memory of earlier connections that
// nothing uses is given back.
func (k *Client) unuse(l *link) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.users--
	i := slices.Index(k.old, l)
	if l.users > 0 || i < 0 {
		return nil
	}
	k.old = slices.Delete(k.old, i, i+1)
	return l.unmap()
}

// attach makes a connection.
func attach(c *Config) (*link, error) {
	conn, err := dial(c.Socket)
	if err != nil {
		return nil, err
	}
	l := &link{
		conn: conn, answers: make(chan any, 1), gone: make(chan struct{}), ports: map[uint32]*atomic.Pointer[RefusedError]{},
		early: map[uint32]*RefusedError{}, ended: map[uint32]struct{}{}, waiters: map[*waiter]struct{}{},
	}
	if err := l.meet(c); err != nil {
		return nil, errors.Join(err, conn.Close(), l.unmap())
	}
	go l.read()
	return l, nil
}

// dial connects to the daemon. While more programs connect than it has accepted, it waits.
func dial(socket string) (*net.UnixConn, error) {
	for end := time.Now().Add(meetTime); ; time.Sleep(time.Millisecond) {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(end) {
			return conn, err
		}
	}
}

// meetTime is how long the daemon may take to answer.
const meetTime = 15 * time.Second

// meet says hello, and maps the memory that the answer brings.
func (l *link) meet(c *Config) error {
	if err := l.write(&wire.Hello{Name: c.Name, Session: c.Session}); err != nil {
		return err
	}
	_ = l.conn.SetReadDeadline(time.Now().Add(meetTime)) // a Unix socket supports it
	body, files, err := l.receive()
	_ = l.conn.SetReadDeadline(time.Time{})
	defer closeFiles(files)
	if err != nil {
		return err
	}
	w, is := body.(*wire.Welcome)
	if !is {
		return refusal(body)
	}
	l.frame, l.boot = w.Frame, w.Boot
	want := 0
	for _, one := range []struct {
		size uint64
		prot int
		to   *[]byte
	}{{w.In, unix.PROT_READ, &l.in}, {w.Out, unix.PROT_READ | unix.PROT_WRITE, &l.out}} {
		if one.size == 0 {
			continue
		}
		if want == len(files) {
			return fmt.Errorf("%w: a descriptor is missing", wire.ErrMessage)
		}
		if err := hasSize(files[want], one.size); err != nil {
			return err
		}
		if *one.to, err = unix.Mmap(int(files[want].Fd()), 0, int(one.size), one.prot, unix.MAP_SHARED); err != nil {
			return fmt.Errorf("map %d bytes of the daemon: %w", one.size, err)
		}
		want++
	}
	return nil
}

// refusal makes an error of an answer that is not the wanted one.
func refusal(body any) error {
	if r, is := body.(*wire.Refusal); is {
		return &RefusedError{r.Reason.String(), r.Text}
	}
	return wire.ErrMessage
}

// hasSize checks that memory of the daemon is as long as it says: beyond its end every access would fault.
func hasSize(f *os.File, size uint64) error {
	info, err := f.Stat()
	if err == nil && (size > math.MaxInt64 || info.Size() < int64(size)) {
		err = fmt.Errorf("%w: memory of %d bytes comes as %d", wire.ErrMessage, size, info.Size())
	}
	return err
}

// end asks the daemon to close a port.
func (l *link) end(number uint32) error {
	l.mu.Lock()
	l.ended[number] = struct{}{}
	l.mu.Unlock()
	return l.write(&wire.Close{Port: number})
}

func (l *link) write(body any, fds ...int) error {
	b, err := wire.Append(nil, body, false)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = l.conn.WriteMsgUnix(b, rights, nil)
	return err
}

// receive reads a message and its descriptors.
func (l *link) receive() (any, []*os.File, error) {
	var b [wire.MaxMessage + 1]byte
	var oob [512]byte // a channel's writer gets many descriptors
	n, oobn, _, _, err := l.conn.ReadMsgUnix(b[:], oob[:])
	files := filesOf(oob[:oobn])
	switch {
	case err != nil:
		return nil, files, err
	case n == 0:
		return nil, files, ErrGone
	}
	body, end, err := wire.Parse(b[:n])
	if r, is := body.(*wire.Refusal); is && end {
		return nil, files, fmt.Errorf("%w: %w", ErrGone, &RefusedError{r.Reason.String(), r.Text})
	}
	return body, files, err
}

func filesOf(oob []byte) (files []*os.File) {
	all, _ := unix.ParseSocketControlMessage(oob) // what cannot be parsed has no descriptors
	for i := range all {
		fds, _ := unix.ParseUnixRights(&all[i])
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "unifiedd"))
		}
	}
	return files
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// opened is the answer to an Open.
type opened struct {
	*wire.Opened
	files []*os.File
}

// read reads messages until the connection ends.
func (l *link) read() {
	for {
		body, files, err := l.receive()
		switch m := body.(type) {
		case *wire.Opened:
			l.answer(opened{m, files})
			continue
		case *wire.Refusal:
			l.answer(m)
		case *wire.Closed:
			l.closed(m)
		}
		closeFiles(files)
		if err != nil {
			l.ends(err)
			return
		}
	}
}

// ends notes why the connection has ended.
func (l *link) ends(err error) {
	l.why = ErrGone
	if errors.Is(err, ErrGone) {
		l.why = err
	}
	close(l.gone)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rouse()
}

// answer passes an answer on. One request at most is under way.
func (l *link) answer(a any) {
	select {
	case l.answers <- a:
	default:
		if o, is := a.(opened); is {
			closeFiles(o.files)
		}
	}
}

// closed notes that the daemon has closed a port.
func (l *link) closed(m *wire.Closed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, is := l.ended[m.Port]; is {
		delete(l.ended, m.Port)
		return
	}
	why := &RefusedError{m.Reason.String(), m.Text}
	if p := l.ports[m.Port]; p != nil {
		p.Store(why)
		delete(l.ports, m.Port)
		l.rouse()
	} else if len(l.early) < maxEarly {
		l.early[m.Port] = why
	}
}

// maxEarly limits what is kept of ports that are not known yet.
const maxEarly = 64

// alive reports whether the connection goes on.
func (l *link) alive() bool {
	select {
	case <-l.gone:
		return false
	default:
		return true
	}
}

// know registers where a port learns that the daemon has closed it.
func (l *link) know(number uint32, closed *atomic.Pointer[RefusedError]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	closed.Store(l.early[number])
	l.ports[number] = closed
}

// forget ends know.
func (l *link) forget(number uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ports, number)
}

func (l *link) unmap() error {
	var errs []error
	for _, b := range []*[]byte{&l.in, &l.out} {
		if *b != nil {
			errs = append(errs, unix.Munmap(*b))
			*b = nil
		}
	}
	return errors.Join(errs...)
}

// Bounds of the time between two attempts to attach again.
const (
	leastPause = 10 * time.Millisecond
	mostPause  = time.Second
)

// again returns a connection that goes on, if there is one: the present one or a new one. Otherwise it says until
// when not to ask again.
func (k *Client) again(now time.Time) (*link, time.Time, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.link == nil:
		return nil, now, net.ErrClosed
	case k.link.alive():
		return k.link, now, nil
	case now.Before(k.next):
		return nil, k.next, k.last
	}
	l, err := attach(&k.config)
	if err != nil {
		k.wait = min(max(2*k.wait, leastPause), mostPause)
		k.last, k.next = err, now.Add(k.wait)
		return nil, k.next, err
	}
	k.wait = 0
	before := k.link
	_ = before.conn.Close() // it is dead
	k.link = l
	if before.users > 0 {
		k.old = append(k.old, before)
		return l, now, nil
	}
	return l, now, before.unmap()
}

// open asks for a port, with descriptors of this program.
func (k *Client) open(l *link, o *wire.Open, give ...int) (opened, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := l.write(o, give...); err != nil {
		return opened{}, fmt.Errorf("%w: %w", ErrGone, err)
	}
	select {
	case a := <-l.answers:
		if got, is := a.(opened); is {
			return got, nil
		}
		return opened{}, refusal(a)
	case <-l.gone:
		return opened{}, l.why
	case <-time.After(meetTime): // a later answer would be taken for that to the next request
		_ = l.conn.Close() // the reader says that it is gone
		<-l.gone
		return opened{}, fmt.Errorf("%w: it did not answer for %v", ErrGone, meetTime)
	}
}
