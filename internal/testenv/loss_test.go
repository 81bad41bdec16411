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
