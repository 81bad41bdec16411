package testenv

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// socketAt opens a UDP socket at an end.
func socketAt(t *testing.T, e *End) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	e.Do(t, func() {
		var err error
		if c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: e.IP.AsSlice()}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// crossing sends datagrams and returns how many of them arrive within a time, and how long one took at least.
func crossing(t *testing.T, from, to *net.UDPConn, n int, wait time.Duration) (came int, least time.Duration) {
	t.Helper()
	least = time.Hour
	for range n {
		began := time.Now()
		if _, err := from.WriteTo([]byte(fmt.Sprint(began.UnixNano())), to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		_ = to.SetReadDeadline(began.Add(wait))
		var b [64]byte
		for { // datagrams of earlier calls may come late
			k, err := to.Read(b[:])
			if err == nil && string(b[:k]) != fmt.Sprint(began.UnixNano()) {
				continue
			}
			if err == nil {
				came, least = came+1, min(least, time.Since(began))
			}
			break
		}
	}
	return came, least
}

// TestLose: frames of an end are lost in one direction, and come again afterwards.
func TestLose(t *testing.T) {
	Root(t)
	Leaks(t)
	ends := NewSwitch(t, 2, PairOptions{})
	a, b := socketAt(t, ends[0]), socketAt(t, ends[1])
	check := func(when string, out, in bool) {
		t.Helper()
		wait := map[bool]time.Duration{true: 2 * time.Second, false: 50 * time.Millisecond}
		if n, _ := crossing(t, a, b, 3, wait[out]); (n == 3) != out || (n > 0) != out {
			t.Errorf("%s, %d of 3 datagrams leave", when, n)
		}
		if n, _ := crossing(t, b, a, 3, wait[in]); (n == 3) != in || (n > 0) != in {
			t.Errorf("%s, %d of 3 datagrams come", when, n)
		}
	}
	check("at first", true, true)
	mend := ends[0].Lose(t, FromEnd, 0)
	check("when what leaves is lost", false, true)
	mend()
	mend = ends[0].Lose(t, ToEnd, 0)
	check("when what comes is lost", true, false)
	ends[0].Lose(t, FromEnd, 0)
	check("when all is lost", false, false)
	mend()
	check("afterwards", true, true)
}

// TestLosePort: only TCP of a port is lost.
func TestLosePort(t *testing.T) {
	Root(t)
	ends := NewSwitch(t, 2, PairOptions{})
	a, b := socketAt(t, ends[0]), socketAt(t, ends[1])
	var open, lost net.Listener
	ends[1].Do(t, func() {
		for _, l := range []*net.Listener{&open, &lost} {
			var err error
			if *l, err = net.Listen("tcp4", ends[1].IP.String()+":0"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { (*l).Close() })
		}
	})
	crossing(t, a, b, 1, 10*time.Second) // a port of a new bridge forwards once the kernel has processed its carrier, up to a second later
	dial := func(l net.Listener) (err error) {
		ends[0].Do(t, func() {
			var c net.Conn
			if c, err = net.DialTimeout("tcp4", l.Addr().String(), 500*time.Millisecond); err == nil {
				c.Close()
			}
		})
		return err
	}
	mend := ends[0].Lose(t, ToEnd, uint16(lost.Addr().(*net.TCPAddr).Port))
	if err := dial(lost); err == nil {
		t.Error("a connection to a port whose frames are lost is made")
	}
	if err := dial(open); err != nil {
		t.Errorf("a connection to another port: %v", err)
	}
	if n, _ := crossing(t, a, b, 3, 2*time.Second); n != 3 {
		t.Errorf("%d of 3 datagrams cross", n)
	}
	mend()
	if err := dial(lost); err != nil {
		t.Errorf("a connection afterwards: %v", err)
	}
}

// TestDisturb: frames are late, and some are lost, until the network is mended.
func TestDisturb(t *testing.T) {
	Root(t)
	Leaks(t)
	ends := NewSwitch(t, 2, PairOptions{})
	a, b := socketAt(t, ends[0]), socketAt(t, ends[1])
	crossing(t, a, b, 1, 2*time.Second)
	const delay = 5 * time.Millisecond
	mend := ends[0].Disturb(t, Disturbance{Seed: 1, Loss: 0.3, Delay: delay, Jitter: delay})
	there, least := crossing(t, a, b, 60, 200*time.Millisecond)
	back, most := crossing(t, b, a, 60, 200*time.Millisecond)
	carried, lost := mend()
	if there == 0 || there == 60 || back == 0 || back == 60 || min(least, most) < delay {
		t.Errorf("%d and %d of 60 datagrams cross, after %v and %v at least", there, back, least, most)
	}
	if lost == 0 || carried < 100 || lost > carried/2 {
		t.Errorf("%d of %d frames are lost, and %d of 120 datagrams", lost, carried, 120-there-back)
	}
	if n, _ := crossing(t, a, b, 10, 2*time.Second); n != 10 {
		t.Errorf("%d of 10 datagrams cross afterwards", n)
	}
}
