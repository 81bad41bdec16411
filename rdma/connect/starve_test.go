package connect

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/rdma"
)

// promptly is how long a good peer may take to connect beside any number of bad ones: far less than
// the time after which the bad ones end.
const promptly = 600 * time.Millisecond

// flood opens n connections to a listener, each of which sends the same bytes.
func flood(t *testing.T, l *Listener, n int, says []byte) {
	t.Helper()
	for range n {
		conn, err := net.Dial("tcp", l.Addr().String())
		testenv.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = conn.Write(says) // the listener may already have closed it
	}
}

// TestStarve: connections that send nothing, or only a first part, do not delay a good peer of the
// same address, with and without TLS.
func TestStarve(t *testing.T) {
	a := authority.New(t)
	dns := credentials(t, a, "starve", a)
	ours, theirs := pair(rdma.RC)
	hello := []byte{0x16, 3, 1, 1, 0x2c, 1}
	for _, c := range []struct {
		name   string
		with   *Credentials
		others int
		says   []byte
	}{
		{"plain, 128 silent", nil, 128, nil},
		{"plain, 1000 silent", nil, 1000, nil},
		{"plain, 1000 that begin", nil, 1000, []byte(magic)},
		{"TLS, 128 silent", dns, 128, nil},
		{"TLS, 1000 silent", dns, 1000, nil},
		{"TLS, 1000 that begin", dns, 1000, hello},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := listen(t, Config{Credentials: c.with})
			flood(t, l, c.others, c.says)
			server := serve(t, l, end(new(journal), "server", ours))
			begin := time.Now()
			conn, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{Credentials: c.with})
			waited := time.Since(begin)
			testenv.Must(t, err)
			if waited > testenv.Within(promptly) {
				t.Errorf("a good peer waited %v behind %d connections", waited, c.others)
			}
			t.Logf("a good peer connected in %v; %d handshakes, failures %v", waited.Round(10*time.Microsecond), l.Handshakes(), l.Failures())
			testenv.Check(t, errors.Join((<-server).err, conn.Close()))
			if n := l.Handshakes(); n > MaxPendingPerAddress {
				t.Errorf("%d connections of one address are in their handshake", n)
			}
			testenv.Wait(t, 10*time.Second, "those that are too many to be counted", func() bool {
				f := l.Failures()
				return f[ReasonAddressLimit]+f[ReasonTimeout] >= uint64(c.others-MaxPendingPerAddress)
			})
		})
	}
}

// TestTLSTime: the listener ends a connection that starts TLS and does not continue within TLSTime.
func TestTLSTime(t *testing.T) {
	a := authority.New(t)
	l := listen(t, Config{Credentials: credentials(t, a, "server", a)})
	begin := time.Now()
	flood(t, l, 3, []byte{0x16, 3, 1, 1, 0x2c, 1})
	waitFor(t, l, ReasonTimeout, 3)
	if took := time.Since(begin); took < TLSTime || took > TLSTime+testenv.Within(time.Second) {
		t.Errorf("they were let go after %v", took)
	}
}

// TestProvenStays: a peer with a certificate keeps its place, however many connections its address
// opens.
func TestProvenStays(t *testing.T) {
	a := authority.New(t)
	good := credentials(t, a, "good", a)
	l := listen(t, Config{Credentials: good})
	config := good.TLS(protocol)
	config.ServerName = "127.0.0.1"
	conn, err := tls.Dial("tcp", l.Addr().String(), config)
	testenv.Must(t, err)
	defer conn.Close()
	offered := make(chan *Request, 1)
	go func() {
		if r, err := l.Accept(t.Context()); err == nil {
			offered <- r
		}
	}()
	_, theirs := pair(rdma.RC)
	testenv.Must(t, writeMessage(conn, kindOffer, AppendOffer(nil, &Offer{Parameters: theirs})))
	r := <-offered
	flood(t, l, 2*MaxPendingPerAddress, []byte{0x16})
	testenv.Check(t, r.session.ctx.Err())
	testenv.Check(t, r.Refuse("enough"))
}

// TestPendingSet: if there are too many connections, the set replaces the right ones.
func TestPendingSet(t *testing.T) {
	s := newPendingSet()
	gone := map[*pending]error{}
	come := func(address string, heard, proven bool) (*pending, error) {
		var p *pending
		p = &pending{host: addrlimit.Host(netip.MustParseAddr(address)), heard: heard, proven: proven, end: func(err error) { gone[p] = err }}
		return p, s.add(p)
	}
	var silent, second *pending
	for i := range MaxPendingPerAddress {
		p, err := come("10.0.0.1", i != 7, i == 0)
		testenv.Must(t, err)
		switch i {
		case 1:
			second = p
		case 7:
			silent = p
		}
	}
	if _, err := come("10.0.0.1", true, false); err != nil || len(gone) != 1 || gone[silent] != errAddressLimit {
		t.Errorf("the silent one is not the first to go: %v, %v", err, gone)
	}
	if _, err := come("10.0.0.1", true, false); err != nil || len(gone) != 2 || gone[second] != errAddressLimit {
		t.Errorf("the oldest that has proven nothing is not the next to go: %v, %v", err, gone)
	}
	for range MaxPendingPerAddress {
		if _, err := come("10.0.0.2", true, true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := come("10.0.0.2", true, false); err != errAddressLimit || len(gone) != 2 {
		t.Errorf("one that has proven itself goes: %v, %v", err, gone)
	}
	for i := 0; s.count() < MaxPending; i++ {
		if _, err := come(fmt.Sprintf("10.0.%d.%d", 1+i/250, i%250), true, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := come("10.9.0.1", false, false); err != nil || len(gone) != 3 || s.set.From(netip.MustParsePrefix("10.0.0.1/32")) != MaxPendingPerAddress-1 {
		t.Errorf("the busiest address does not give a place: %v, %d", err, len(gone))
	}
}

// TestCloseEndsSilent: closing a listener does not wait for silent connections.
func TestCloseEndsSilent(t *testing.T) {
	l := listen(t, Config{})
	flood(t, l, 10, nil)
	for l.Handshakes() < 10 {
		time.Sleep(time.Millisecond)
	}
	begin := time.Now()
	testenv.Check(t, l.Close())
	if took := time.Since(begin); took > FirstByteTime/2 {
		t.Errorf("it took %v", took)
	}
	waitFor(t, l, ReasonCancelled, 10)
	_, err := net.Dial("tcp", l.Addr().String())
	if reasonOf(err) != ReasonNetwork {
		t.Error(err)
	}
}
