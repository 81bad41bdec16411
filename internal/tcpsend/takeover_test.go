package tcpsend

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// tcp makes a connection between the ends of a pair, of which end A's descriptor is that of the program.
func tcp(t *testing.T, p *testenv.Pair, family int) (program int, exchange *net.TCPConn) {
	t.Helper()
	var l *net.TCPListener
	p.B.Do(t, func() {
		var err error
		if l, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.B.IP, 0))); err != nil {
			t.Fatal(err)
		}
	})
	defer l.Close()
	to := l.Addr().(*net.TCPAddr).AddrPort()
	p.A.Do(t, func() { program = socket(t, family, unix.SOCK_STREAM) })
	var err error
	if family == unix.AF_INET {
		err = unix.Connect(program, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	} else {
		err = unix.Connect(program, &unix.SockaddrInet6{Port: int(to.Port()), Addr: netip.AddrFrom16(to.Addr().As16()).As16()})
	}
	testenv.Must(t, err)
	c, err := l.AcceptTCP()
	testenv.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return program, c
}

func socket(t *testing.T, family, kind int) int {
	t.Helper()
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	testenv.Must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// takeOver calls TakeOver at end A.
func takeOver(t *testing.T, p *testenv.Pair, fd int) (c *Conn, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(time.Second))
	defer cancel()
	p.A.Do(t, func() { c, err = TakeOver(ctx, fd, Config{Interface: p.A.Index}) })
	return c, err
}

// TestTakeOver: a connection of another process is taken if the flow can send on it, with the addresses that it has, and
// once at a time. Closing the copy leaves the process its connection.
func TestTakeOver(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} { // the second is one of IPv4 all the same
		fd, exchange := tcp(t, p, family)
		if _, err := unix.Write(fd, []byte("login")); err != nil {
			t.Fatal(err)
		}
		var b [64]byte
		if n, err := exchange.Read(b[:]); string(b[:n]) != "login" || err != nil {
			t.Fatalf("%q, %v", b[:n], err)
		}
		if _, err := exchange.Write([]byte("welcome")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			c, err := takeOver(t, p, fd)
			testenv.Must(t, err)
			if c.Local().Addr() != p.A.IP || c.Remote().Addr() != p.B.IP || !c.Remote().Addr().Is4() {
				t.Errorf("from %v to %v", c.Local(), c.Remote())
			}
			if _, err := takeOver(t, p, fd); !errors.Is(err, ErrInUse) {
				t.Errorf("a second time: %v", err)
			}
			if on, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR); on != 0 || err != nil {
				t.Errorf("the process gets a socket in repair mode: %d, %v", on, err)
			}
			c.SetPath(&Path{MTU: 1500})
			if why := c.Guard(10); why != NoEcho && why != None {
				t.Errorf("the first payload: %v", why)
			}
			if !c.Plain([]byte("order")) || !c.Settle() {
				t.Fatal("the kernel does not take a payload")
			}
			if n, err := exchange.Read(b[:]); string(b[:n]) != "order" || err != nil {
				t.Fatalf("%q, %v", b[:n], err)
			}
			testenv.Must(t, c.Close())
		}
		if n, err := unix.Read(fd, b[:]); string(b[:n]) != "welcome" || err != nil {
			t.Errorf("%q, %v", b[:n], err)
		}
		if _, err := unix.Write(fd, []byte("logout")); err != nil {
			t.Fatal(err)
		}
		if n, err := exchange.Read(b[:]); string(b[:n]) != "logout" || err != nil {
			t.Fatalf("%q, %v", b[:n], err)
		}
	}
}

// TestUnfit: what no flow can send on is refused, and the error says why. Nothing of it stays open.
func TestUnfit(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	for _, c := range []struct {
		name, says string
		fd         func() int
	}{
		{"a closed descriptor", "not that of a socket", func() int { return 1 << 20 }},
		{"a file", "not that of a socket", func() int {
			f, err := os.Open("/proc/self/status")
			testenv.Must(t, err)
			t.Cleanup(func() { f.Close() })
			return int(f.Fd())
		}},
		{"a unix socket", "is not one of TCP", func() int { return socket(t, unix.AF_UNIX, unix.SOCK_STREAM) }},
		{"UDP", "is not one of TCP", func() (fd int) {
			p.A.Do(t, func() { fd = socket(t, unix.AF_INET, unix.SOCK_DGRAM) })
			return fd
		}},
		{"packets", "is not one of TCP", func() (fd int) {
			p.A.Do(t, func() { fd = socket(t, unix.AF_PACKET, unix.SOCK_RAW) })
			return fd
		}},
		{"not connected", "not established", func() (fd int) {
			p.A.Do(t, func() { fd = socket(t, unix.AF_INET, unix.SOCK_STREAM) })
			return fd
		}},
		{"a listener", "not established", func() (fd int) {
			p.A.Do(t, func() { fd = socket(t, unix.AF_INET, unix.SOCK_STREAM) })
			testenv.Must(t, unix.Listen(fd, 1))
			return fd
		}},
		{"another namespace", "another network namespace", func() (fd int) {
			p.B.Do(t, func() { fd = socket(t, unix.AF_INET, unix.SOCK_STREAM) })
			return fd
		}},
		{"closed by the peer", "not established", func() int {
			fd, exchange := tcp(t, p, unix.AF_INET)
			exchange.Close()
			unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, 5000)
			return fd
		}},
		{"repair mode", "repair mode", func() int {
			fd, _ := tcp(t, p, unix.AF_INET)
			testenv.Must(t, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, 1))
			t.Cleanup(func() { unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, -1) })
			return fd
		}},
		{"unsent bytes", "not sent yet", func() int {
			fd, exchange := tcp(t, p, unix.AF_INET)
			exchange.SetReadBuffer(4096)
			testenv.Must(t, unix.SetNonblock(fd, true))
			for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
				unix.Write(fd, make([]byte, 64<<10))
			}
			return fd
		}},
	} {
		if a, err := takeOver(t, p, c.fd()); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v", c.name, a, err)
		} else {
			t.Logf("%s: %v", c.name, err)
		}
	}
}
