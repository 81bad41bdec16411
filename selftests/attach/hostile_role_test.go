package attach

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// hostile is an attached program that does all that it can to keep the daemon from serving others, until it is killed.
type hostile struct {
	socket, name string
	session      uint64 // of another program
	conn         *net.UnixConn
	fds          []int
	linger       net.Listener
}

// connects is an argument of a hostile program that connects without end, so that it can attach only now and then.
const connects = "connects"

// beHostile attacks the daemon at a socket, as a program and with the session of another one.
func beHostile(args []string) error {
	h := &hostile{socket: args[0], name: args[1], session: 77}
	var err error
	if h.linger, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return err
	}
	if slices.Contains(args[2:], connects) {
		go h.connects()
	}
	for {
		if err := h.attack(); err != nil && !errors.Is(err, errRefused) {
			return err
		}
		h.leave()
	}
}

// answerTimeout is how long an attack waits for an answer. The daemon has none to the end of a port that is not open.
const answerTimeout = 100 * time.Millisecond

// errRefused says that the daemon has ended an attack.
var errRefused = errors.New("the daemon refuses")

// connects takes places at the socket, without a name.
func (h *hostile) connects() {
	for {
		var all []net.Conn
		for range 600 {
			if c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.socket, Net: "unixpacket"}); err == nil {
				all = append(all, c)
			}
		}
		for _, c := range all {
			_ = c.Close()
		}
		time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond) // the places are also those of this user's programs
	}
}

// ask sends a message with descriptors, and reads the answer.
func (h *hostile) ask(body any, give ...int) (answer any, fds []int, err error) {
	b, err := wire.Append(nil, body, false)
	if err != nil {
		return nil, nil, err
	}
	var rights []byte
	if len(give) > 0 {
		rights = unix.UnixRights(give...)
	}
	if _, _, err := h.conn.WriteMsgUnix(b, rights, nil); err != nil {
		return nil, nil, errRefused
	}
	_ = h.conn.SetReadDeadline(time.Now().Add(answerTimeout)) // a Unix socket supports it
	in, oob := make([]byte, 1024), make([]byte, 1024)
	n, oobn, _, _, err := h.conn.ReadMsgUnix(in, oob)
	if err != nil || n == 0 {
		return nil, nil, errRefused
	}
	all, _ := unix.ParseSocketControlMessage(oob[:oobn])
	for i := range all {
		more, _ := unix.ParseUnixRights(&all[i])
		fds = append(fds, more...)
	}
	h.fds = append(h.fds, fds...)
	if answer, _, err = wire.Parse(in[:n]); err != nil {
		return nil, nil, err
	}
	if _, is := answer.(*wire.Refusal); is {
		return nil, nil, errRefused
	}
	return answer, fds, nil
}

func (h *hostile) leave() {
	if h.conn != nil {
		_ = h.conn.Close()
	}
	for _, fd := range h.fds {
		_ = unix.Close(fd)
	}
	h.conn, h.fds = nil, nil
}

// attack attaches, opens all that it may, and breaks the rules for a moment.
func (h *hostile) attack() (err error) {
	if h.conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.socket, Net: "unixpacket"}); err != nil {
		return errRefused
	}
	slow := h.slowToClose(rand.IntN(8) == 0)
	defer closeAll(slow)
	if _, _, err := h.ask(&wire.Hello{Name: h.name, Session: h.session}, slow...); err != nil {
		return err
	}
	var wakes, readOnly []int
	if _, fds, err := h.ask(&wire.Open{Flow: h.name, Role: wire.Send}); err == nil && len(fds) == 2 {
		wakes = append(wakes, fds[1])
		defer h.scribble(fds[0])
	}
	if _, fds, err := h.ask(&wire.Open{Flow: h.name + "-md", Role: wire.Receive}); err == nil && len(fds) == 2 {
		wakes = append(wakes, fds[1])
	}
	if _, fds, err := h.ask(&wire.Open{Flow: "book", Role: wire.Write}); err == nil && len(fds) > 1 {
		readOnly = append(readOnly, fds[1])
		for i := 2; i+1 < len(fds); i += 2 {
			readOnly, wakes = append(readOnly, fds[i]), append(wakes, fds[i+1])
		}
	}
	for _, fd := range readOnly {
		if err := h.reopen(fd); err != nil {
			return err
		}
	}
	h.flood(wakes)
	if rand.IntN(2) == 0 {
		for _, fd := range wakes {
			_ = unix.Shutdown(fd, unix.SHUT_RDWR)
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // the daemon may spin
	}
	for i := range uint32(3) {
		if _, _, err := h.ask(&wire.Close{Port: i + 1}); err != nil {
			return err
		}
	}
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// flood sends wakes for some milliseconds as fast as it can, some with descriptors.
func (h *hostile) flood(wakes []int) {
	var stop atomic.Bool
	ended := make(chan bool)
	for _, fd := range wakes {
		_ = unix.SetNonblock(fd, false)
		go func() {
			for chunk := make([]byte, 32<<10); !stop.Load(); {
				_, _ = unix.SendmsgN(fd, chunk[:1+rand.IntN(len(chunk)-1)], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			}
			ended <- true
		}()
	}
	time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	if rand.IntN(4) == 0 && len(wakes) > 0 {
		slow := h.slowToClose(true)
		_ = unix.Sendmsg(wakes[0], []byte{1}, unix.UnixRights(slow...), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		closeAll(slow)
	}
	stop.Store(true)
	for range wakes {
		<-ended
	}
}

// slowToClose makes a socket that takes a minute to close, if want.
func (h *hostile) slowToClose(want bool) []int {
	if !want {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	at := h.linger.Addr().(*net.TCPAddr)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())}); err != nil {
		_ = unix.Close(fd)
		return nil
	}
	if c, err := h.linger.Accept(); err == nil {
		time.AfterFunc(time.Second, func() { _ = c.Close() })
	}
	for chunk := make([]byte, 64<<10); ; {
		if _, err := unix.SendmsgN(fd, chunk, nil, nil, unix.MSG_DONTWAIT); err != nil {
			break
		}
	}
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60})
	many := make([]int, 1, 200) // one that the daemon closes last
	many[0] = fd
	for len(many) < cap(many) {
		again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		many = append(many, again)
	}
	return many
}

// reopen opens memory again that it has for reading only, and writes into it.
func (h *hostile) reopen(fd int) error {
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	_ = unix.Close(again)
	return errors.New("memory of the daemon can be opened again for writing")
}

// scribble writes anything into the rings of a port.
func (h *hostile) scribble(fd int) {
	b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return
	}
	for range 100 {
		b[rand.IntN(len(b))] = byte(rand.Uint32())
	}
	_ = unix.Munmap(b)
}
