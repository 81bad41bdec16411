package order

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// names is a DNS server, which this process asks until the end of the test. It knows one name.
type names struct {
	addresses atomic.Pointer[[]netip.Addr] // of exchange.test.
}

func newNames(t *testing.T, addresses ...netip.Addr) *names {
	t.Helper()
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	testenv.Must(t, err)
	n := &names{}
	n.addresses.Store(&addresses)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var b [512]byte
		for {
			k, from, err := socket.ReadFromUDPAddrPort(b[:])
			if err != nil {
				return
			}
			if answer, err := n.answer(b[:k]); err == nil {
				_, _ = socket.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", socket.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		socket.Close()
		<-done
	})
	return n
}

// answer answers a query.
func (n *names) answer(query []byte) ([]byte, error) {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	head.Response, head.RCode = true, dnsmessage.RCodeNameError
	b := dnsmessage.Message{Header: head, Questions: []dnsmessage.Question{q}}
	if q.Name.String() == "exchange.test." {
		b.RCode = dnsmessage.RCodeSuccess
		for _, a := range *n.addresses.Load() {
			one := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}}
			switch {
			case a.Is4() && q.Type == dnsmessage.TypeA:
				one.Body = &dnsmessage.AResource{A: a.As4()}
			case a.Is6() && q.Type == dnsmessage.TypeAAAA:
				one.Body = &dnsmessage.AAAAResource{AAAA: a.As16()}
			default:
				continue
			}
			b.Answers = append(b.Answers, one)
		}
	}
	return b.Pack()
}

// TestNames: a name is looked up, and its addresses are tried one after the other. One that cannot be used is named.
func TestNames(t *testing.T) {
	n := newNames(t, netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("2001:db8::9"))
	get := func(connect string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(10*time.Second))
		defer cancel()
		all, err := Addresses(ctx, connect)
		var texts []string
		for _, one := range all {
			texts = append(texts, one.String())
		}
		slices.Sort(texts) // the resolver orders them by the host's routes (RFC 6724)
		return strings.Join(texts, " "), err
	}
	for _, c := range []struct{ connect, want string }{
		{"10.0.0.9:4001", "10.0.0.9:4001"}, {"[2001:db8::9]:4001", "[2001:db8::9]:4001"}, {"exchange.test.:4001", "10.0.0.9:4001 [2001:db8::9]:4001"},
	} {
		if got, err := get(c.connect); got != c.want || err != nil {
			t.Errorf("%s: %s, %v; want %s", c.connect, got, err, c.want)
		}
	}
	if got, err := get("nobody.test.:4001"); err == nil || !strings.Contains(err.Error(), "nobody.test") || !strings.Contains(err.Error(), "/etc/hosts") {
		t.Errorf("a name that there is not: %s, %v", got, err)
	}
	n.addresses.Store(&[]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("0.0.0.0")})
	if got, err := get("exchange.test.:4001"); err == nil || !strings.Contains(err.Error(), "no host on a network") || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("a name of this host: %s, %v", got, err)
	}
}

// TestNamedExchange: the flow connects to the first address of a name that answers, and follows the name when it connects
// again.
func TestNamedExchange(t *testing.T) {
	testenv.Root(t)
	ends := testenv.NewSwitch(t, 3, testenv.PairOptions{})
	refuses := netip.MustParseAddr("10.77.0.1") // this end, where nobody listens
	n := newNames(t, refuses, ends[1].IP)
	r := newRig(t, ends[0], ends[1], options{name: "exchange.test."})
	s := newStream(r, 100)
	s.delegates("to the second address")
	if o := r.status().Orders; !strings.HasPrefix(o.Connects, "exchange.test.:") || !strings.HasPrefix(o.Remote, ends[1].IP.String()+":") || o.Failed != 0 {
		t.Errorf("%+v", o)
	}
	other := listenAt(t, ends[2], netip.AddrPortFrom(ends[2].IP, r.exchange.address.Port()), 0)
	n.addresses.Store(&[]netip.Addr{ends[2].IP})
	testenv.Must(t, r.exchange.listener.Close())
	s.conn.Close()
	r.await("connection to the other one", func() bool { return r.sink.conn != nil && r.sink.conn.Remote().Addr() == ends[2].IP })
	got := read(other.accept(), 100, nil)
	r.send(orderOf(s.b[:], 0, 100))
	r.await("stream", func() bool { return got.orders.Load() == 1 })
	if o := r.status().Orders; o.Lost != 1 || o.Connections != 2 {
		t.Errorf("%+v", o)
	}
}
