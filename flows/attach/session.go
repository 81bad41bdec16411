package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// session is a program's connection. Its goroutine reads the program's messages; another one may end it.
type session struct {
	hub     *Hub
	log     *slog.Logger
	conn    *net.UnixConn
	pid     int32
	uid     uint32
	place   uint32 // whose place in the hub it has: see Hub.admit
	process int    // pidfd of the program; -1: none
	program *Program
	id      uint64 // the program's own number for its messages

	sending sync.Mutex
	ports   map[uint32]*openPort    // under program.mu
	sides   map[uint32]*channelSide // of channels; under program.mu
	gifts   map[uint32]*gift        // connections that the program has given; under program.mu
	last    uint32                  // number of the last port
	states  []string                // that the program has opened; under program.mu
	quit    chan struct{}           // closed when the session ends
	once    sync.Once
	why     *wire.Refusal // nil: the program has ended it
}

// openPort is a port with the end that it belongs to.
type openPort struct {
	*Port
	end *End
}

func newSession(h *Hub, c *net.UnixConn) *session {
	return &session{hub: h, log: h.log, conn: c, uid: stranger, process: -1, ports: map[uint32]*openPort{}, sides: map[uint32]*channelSide{}, gifts: map[uint32]*gift{}, quit: make(chan struct{})}
}

const (
	// helloTime is how long a program may take to say its name.
	helloTime = 5 * time.Second
	// idleTime is how long a flow may work on what came over a port before the next one opens.
	idleTime = 10 * time.Second
)

// serve serves a connection until it ends.
func (s *session) serve(ctx context.Context) {
	defer s.close()
	if err := s.identify(); err != nil {
		s.log.Warn("a program could not be identified", "err", err)
		return
	}
	why := s.known()
	if why == nil {
		why = s.hello()
	}
	if why != nil {
		s.hub.countRefused(why.Reason)
		if s.program != nil {
			s.program.ended(why.Reason)
		}
		s.log.Warn("a program was refused", "pid", s.pid, "user", s.uid, "reason", why.Reason.String(), "err", why.Text)
		s.refuse(why)
		s.linger()
		return
	}
	s.log.Info("a program has attached", "program", s.program.name, "pid", s.pid)
	done := make(chan struct{})
	go func() { defer close(done); s.watch() }()
	err := s.messages(ctx)
	s.end(nil)
	s.detach(err)
	if s.why != nil {
		s.linger()
	}
	<-done
}

// peer asks the kernel who is connected.
func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var gerr error
	if err := raw.Control(func(fd uintptr) { cred, gerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil || gerr != nil {
		return nil, errors.Join(err, gerr)
	}
	return cred, nil
}

// userOf returns the user who is connected.
func userOf(c *net.UnixConn) uint32 {
	cred, err := peer(c)
	if err != nil {
		return stranger // serve says why
	}
	return cred.Uid
}

// identify finds the process that is connected.
func (s *session) identify() error {
	cred, err := peer(s.conn)
	if err != nil {
		return err
	}
	s.pid = cred.Pid
	s.process, err = unix.PidfdOpen(int(cred.Pid), 0)
	if err != nil { // the process may have ended, or be in another PID namespace: the socket tells its end, too
		s.process = -1
	}
	return nil
}

// known refuses a user that no program is of, before it has said anything.
func (s *session) known() *wire.Refusal {
	if s.place != stranger {
		return nil
	}
	return &wire.Refusal{Reason: wire.NotPermitted, Text: fmt.Sprintf("no program in attach.programs is of user %d", s.uid)}
}

// hello reads the program's first message and answers it.
func (s *session) hello() *wire.Refusal {
	_ = s.conn.SetReadDeadline(time.Now().Add(helloTime)) // a Unix socket supports it
	body, came, err := s.read()
	closeAll(came)
	_ = s.conn.SetReadDeadline(time.Time{})
	hello, is := body.(*wire.Hello)
	switch {
	case errors.Is(err, wire.BadVersion):
		return &wire.Refusal{Reason: wire.BadVersion, Text: fmt.Sprintf("this daemon has version %d", wire.Version)}
	case err != nil || !is:
		return &wire.Refusal{Reason: wire.BadMessage, Text: "the first message must be a hello"}
	}
	p := s.hub.programs[hello.Name]
	switch {
	case p == nil:
		return &wire.Refusal{Reason: wire.BadName, Text: fmt.Sprintf("there is no program %q in attach.programs", hello.Name)}
	case p.uid != s.uid:
		return &wire.Refusal{Reason: wire.NotPermitted, Text: fmt.Sprintf("program %q is of user %d, and this is user %d", hello.Name, p.uid, s.uid)}
	}
	s.id = hello.Session
	if !p.attach(s) {
		p.ended(wire.Busy)
		return &wire.Refusal{Reason: wire.Busy, Text: fmt.Sprintf("program %q is attached", hello.Name)}
	}
	s.program, s.log = p, p.log
	w := wire.Welcome{Boot: s.hub.boot, Frame: s.hub.config.Region.FrameSize()}
	var fds []int
	if in := p.slice.In; in != nil {
		w.In = in.Size()
		fds = append(fds, int(in.File().Fd()))
	}
	if out := p.slice.Out; out != nil {
		w.Out = out.Size()
		fds = append(fds, int(out.File().Fd()))
	}
	if err := s.write(&w, false, fds...); err != nil {
		p.detach(s)
		return &wire.Refusal{Reason: wire.Gone, Text: err.Error()}
	}
	return nil
}

// read reads a message. The caller closes its descriptors, also after an error.
func (s *session) read() (body any, fds []int, err error) {
	var b [wire.MaxMessage + 1]byte
	var oob [rightsRoom]byte
	n, oobn, _, _, err := s.conn.ReadMsgUnix(b[:], oob[:])
	fds = descriptors(oob[:oobn])
	switch {
	case err != nil:
		return nil, fds, err
	case n == 0:
		return nil, fds, errGone
	case n > wire.MaxMessage:
		return nil, fds, wire.ErrMessage
	}
	body, _, err = wire.Parse(b[:n])
	return body, fds, err
}

var errGone = errors.New("the program has closed its socket")

// descriptors returns what came with a message. The runtime has asked the kernel to close them on exec.
func descriptors(oob []byte) (fds []int) {
	all, _ := unix.ParseSocketControlMessage(oob) // what cannot be parsed has no descriptors
	for i := range all {
		some, _ := unix.ParseUnixRights(&all[i])
		fds = append(fds, some...)
	}
	return fds
}

// write sends a message with descriptors. A program that does not read loses its connection: its socket's buffer
// holds many messages.
func (s *session) write(body any, end bool, fds ...int) error {
	b, err := wire.Append(nil, body, end)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeTime)) // a Unix socket supports it
	_, _, err = s.conn.WriteMsgUnix(b, rights, nil)
	return err
}

// writeTime is how long a program may leave its socket's buffer full.
const writeTime = time.Second

func (s *session) refuse(why *wire.Refusal) { _ = s.write(why, false) } // it may be gone

// linger reads what the program has sent, until it closes its end. A socket that is closed with bytes to read gives the
// program an error before the last message.
func (s *session) linger() {
	_ = s.conn.SetReadDeadline(time.Now().Add(lingerTime)) // a Unix socket supports it
	for {
		_, fds, err := s.read()
		closeAll(fds)
		if err != nil && !errors.Is(err, wire.ErrMessage) && !errors.Is(err, wire.BadVersion) {
			return
		}
	}
}

// lingerTime is how long a program that was refused or ended may take to close its socket.
const lingerTime = 200 * time.Millisecond

// messages handles messages until the connection ends.
func (s *session) messages(ctx context.Context) error {
	for {
		body, fds, err := s.read()
		if err != nil {
			closeAll(fds)
			if !errors.Is(err, errGone) && (errors.Is(err, wire.ErrMessage) || errors.Is(err, wire.BadVersion)) {
				s.end(&wire.Refusal{Reason: wire.BadMessage, Text: err.Error()})
			}
			return err
		}
		switch m := body.(type) {
		case *wire.Open:
			switch m.Role {
			case wire.Write, wire.Follow:
				err = s.openChannel(m)
			case wire.Look:
				err = s.openState(m)
			case wire.Give:
				fds, err = s.give(m, fds)
			default:
				err = s.open(ctx, m)
			}
		case *wire.Mapped:
			err = s.mapped(m.Port)
		case *wire.Close:
			err = s.closePort(m.Port, &wire.Refusal{Reason: wire.None, Text: "as asked for"})
		default:
			s.end(&wire.Refusal{Reason: wire.BadMessage, Text: "this message is the daemon's to send"})
			err = wire.BadMessage
		}
		closeAll(fds)
		if err != nil {
			return err
		}
	}
}

// maxPorts is how many ports a program may have.
const maxPorts = 64

// open opens a port. A refusal is no error.
func (s *session) open(ctx context.Context, m *wire.Open) error {
	p, o, f, why := s.makePort(ctx, m)
	if why != nil {
		s.program.ended(why.Reason)
		return s.write(why, false)
	}
	defer f.close() // the program has copies
	if err := s.write(o, false, int(f.rings.Fd()), int(f.wake.Fd())); err != nil {
		return err
	}
	go s.attend(p)
	s.log.Info("a program has opened a port", "program", s.program.name, "flow", m.Flow, "role", m.Role.String(), "port", o.Port, "entries", o.Entries, "next", o.Next)
	return nil
}

// makePort makes a port and installs it in the flow.
func (s *session) makePort(ctx context.Context, m *wire.Open) (*openPort, *wire.Opened, *portFiles, *wire.Refusal) {
	refuse := func(why wire.Reason, format string, args ...any) (*openPort, *wire.Opened, *portFiles, *wire.Refusal) {
		return nil, nil, nil, &wire.Refusal{Reason: why, Text: fmt.Sprintf(format, args...)}
	}
	e := s.program.find(m.Flow, m.Role)
	switch {
	case e == nil:
		return refuse(wire.NoSuchFlow, "no running flow %q lets program %q %s", m.Flow, s.program.name, m.Role)
	case m.Depth > MaxEntries:
		return refuse(wire.OverQuota, "a ring has at most %d entries, and not %d", MaxEntries, m.Depth)
	}
	s.program.mu.Lock()
	number, full := s.number()
	s.program.mu.Unlock()
	if full {
		return refuse(wire.OverQuota, "a program has at most %d ports", maxPorts)
	}
	entries := e.entries(m.Depth)
	port, files, err := newPort(number, s.id, entries)
	if err != nil {
		s.log.Error("no port for a program", "program", s.program.name, "flow", m.Flow, "err", err)
		return refuse(wire.OverQuota, "%v", err)
	}
	port.from = m.From
	p := &openPort{port, e}
	if !s.add(p) {
		if err := errors.Join(files.close(), port.free()); err != nil {
			s.log.Error("give back a port that was not opened", "program", s.program.name, "flow", m.Flow, "err", err)
		}
		return refuse(wire.Closing, "flow %q ends", m.Flow)
	}
	next, err := s.install(ctx, p)
	if err != nil {
		s.forget(p)
		err = errors.Join(err, files.close(), port.free())
		if errors.Is(err, wire.Busy) {
			return refuse(wire.Busy, "flow %q has a port open", m.Flow)
		}
		return refuse(wire.Busy, "flow %q: %v", m.Flow, err)
	}
	return p, &wire.Opened{Port: number, Entries: entries, Next: next, Size: e.config.Size, Align: e.config.Align, Longest: e.config.Longest}, files, nil
}

// number returns the number of the next port, and whether there are as many as there may be. The caller holds
// program.mu.
func (s *session) number() (n uint32, full bool) {
	s.last++
	return s.last, len(s.ports)+len(s.sides)+len(s.gifts) >= maxPorts
}

// add makes a port known, unless its flow ends.
func (s *session) add(p *openPort) bool {
	s.program.mu.Lock()
	defer s.program.mu.Unlock()
	if p.end.closed {
		return false
	}
	s.ports[p.number], s.program.ports[p.number] = p, p.end
	return true
}

// forget reports whether a port was known.
func (s *session) forget(p *openPort) bool {
	s.program.mu.Lock()
	defer s.program.mu.Unlock()
	if s.ports[p.number] != p {
		return false
	}
	delete(s.ports, p.number)
	delete(s.program.ports, p.number)
	return true
}

// install waits until the flow has done what came over an earlier port, and installs this one.
func (s *session) install(ctx context.Context, p *openPort) (next uint64, err error) {
	for end := time.Now().Add(idleTime); ; {
		err = p.end.config.Do(func() (err error) { next, err = p.end.install(p.Port); return err })
		if !errors.Is(err, errNotIdle) || time.Now().After(end) {
			return next, err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return 0, wire.Closing
		case <-s.quit:
			return 0, wire.Gone
		}
	}
}

// attend ends the connection when the port's rings break the rules.
func (s *session) attend(p *openPort) {
	select {
	case <-p.failed:
		why := p.why()
		s.end(&wire.Refusal{Reason: why, Text: "flow " + p.end.config.Flow + ": " + why.Error()})
	case <-s.quit:
	}
}

// closePort closes a port and tells the program. It does nothing if there is none of that number.
func (s *session) closePort(number uint32, why *wire.Refusal) error {
	s.program.mu.Lock()
	p, side, g := s.ports[number], s.sides[number], s.gifts[number]
	s.program.mu.Unlock()
	if side != nil {
		return s.closeSide(side, why)
	}
	if g != nil {
		s.takeBack(g)
		return nil
	}
	if p == nil || !s.forget(p) {
		return nil
	}
	if why.Reason != wire.None {
		s.program.ended(why.Reason)
	}
	if err := s.write(&wire.Closed{Port: number, Refusal: *why}, false); err != nil {
		s.end(nil) // else the program would wait at the port for ever
	}
	return s.release(p)
}

// release takes a port off its flow, and gives its memory back.
func (s *session) release(p *openPort) error {
	err := p.end.config.Do(func() error { p.end.uninstall(p.Port); return nil }) // if the worker has ended, nothing else uses the port
	return errors.Join(err, p.free())
}

// end ends the session. Any goroutine may call it; the first reason counts.
func (s *session) end(why *wire.Refusal) {
	s.once.Do(func() {
		s.why = why
		close(s.quit)
		if why != nil {
			_ = s.write(why, true) // it may be gone
		}
		_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // read returns
	})
}

// ending reports whether the session has ended, or is about to because its process has.
func (s *session) ending() bool {
	select {
	case <-s.quit:
		return true
	default:
	}
	if s.process < 0 {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(s.process), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// watch ends the session when the program's process ends, even if a child of it has the socket.
func (s *session) watch() {
	if s.process < 0 {
		<-s.quit
		return
	}
	fds := []unix.PollFd{{Fd: int32(s.process), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(watchEvery/time.Millisecond))
		if err == nil && n > 0 {
			s.end(nil)
			return
		}
		select {
		case <-s.quit:
			return
		default:
		}
	}
}

// watchEvery is how often watch looks whether the session has ended.
const watchEvery = 50 * time.Millisecond

// detach closes all ports, and makes the name free.
func (s *session) detach(err error) {
	s.program.mu.Lock()
	all, sides, gifts := slices.Collect(maps.Values(s.ports)), slices.Collect(maps.Values(s.sides)), slices.Collect(maps.Values(s.gifts))
	s.program.mu.Unlock()
	var errs []error
	for _, g := range gifts {
		s.takeBack(g)
	}
	for _, side := range sides {
		errs = append(errs, s.closeSide(side, nil))
	}
	for _, p := range all {
		if s.forget(p) {
			errs = append(errs, s.release(p))
		}
	}
	why := wire.Gone
	if s.why != nil {
		why, err = s.why.Reason, s.why
	}
	s.program.ended(why)
	s.log.Info("a program has left", "program", s.program.name, "pid", s.pid, "reason", why.String(), "err", errors.Join(append(errs, err)...))
	s.program.detach(s)
}

func (s *session) close() {
	_ = s.conn.Close() // closed by the program already, or by end
	if s.process >= 0 {
		_ = unix.Close(s.process)
	}
}
