package network

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestLinkChanges: Next reports each change of an interface, and Link returns the reported state.
func TestLinkChanges(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	want := Link{Name: p.A.Ifname, MAC: MAC(p.A.MAC), MTU: 1500, Up: true}
	if got := i.Link(); got != want || i.Index() != p.A.Index {
		t.Fatalf("%+v, index %d; want %+v, index %d", got, i.Index(), want, p.A.Index)
	}
	nothing(t, i)
	set := func(want Link, args ...string) {
		t.Helper()
		p.A.Run(t, "ip", append([]string{"link", "set", p.A.Ifname}, args...)...)
		for got := (Link{}); got != want; { // the carrier may change later
			if got = next(t, i, LinkChanged).Link; got != i.Link() {
				t.Errorf("told %+v, is %+v", got, i.Link())
			}
		}
		nothing(t, i)
	}
	want.MTU = 1400
	set(want, "mtu", "1400")
	want.MAC[5] = 9
	set(want, "address", want.MAC.String())
	want.Up = false
	set(want, "down")
	want.Name = "renamed0"
	p.A.Rename(t, want.Name)
	if got := next(t, i, LinkChanged).Link; got != want || i.Name() != "renamed0" {
		t.Errorf("%+v, want %+v", got, want)
	}
	want.Up = true
	set(want, "up")
	p.B.SetDown(t) // the other end loses its carrier
	want.Up = false
	if got := next(t, i, LinkChanged).Link; got != want {
		t.Errorf("without a carrier: %+v, want %+v", got, want)
	}
	_, err := tryResolve(t, i, "10.77.0.1", "10.77.0.2")
	wantError(t, "without a carrier", err, errInterfaceDown)
}

// TestAddressChanges: addresses keep their index in the table, and a new one takes the first free
// index.
func TestAddressChanges(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{IPv6: true})
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	is := func(want ...string) {
		t.Helper()
		var got []string
		for _, e := range i.GIDs() {
			for len(got) < e.Index {
				got = append(got, "")
			}
			got = append(got, e.GID.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("the table has %q, want %q", got, want)
		}
	}
	change := func(kind What, place int, args ...string) {
		t.Helper()
		p.A.Run(t, "ip", append([]string{"address"}, append(args, "dev", p.A.Ifname)...)...)
		if c := next(t, i, kind); c.GID.Index != place || !strings.HasPrefix(args[1], c.GID.GID.String()+"/") || c.GID.Interface != p.A.Index {
			t.Errorf("%v: %+v, want place %d", args, c.GID, place)
		}
		nothing(t, i)
	}
	const link = "fe80::77:ff:fe00:1"
	is(link, "10.77.0.1", "fd77::1")
	change(GIDRemoved, 1, "del", "10.77.0.1/24")
	is(link, "", "fd77::1")
	change(GIDAdded, 1, "add", "fd77::9/64")
	change(GIDAdded, 3, "add", "10.77.0.9/24")
	is(link, "fd77::9", "fd77::1", "10.77.0.9")
	change(GIDRemoved, 2, "del", "fd77::1/64")
	change(GIDRemoved, 1, "del", "fd77::9/64")
	change(GIDAdded, 1, "add", "10.77.3.1/32")
	is(link, "10.77.3.1", "", "10.77.0.9")

	// The same address with another prefix is the same address.
	p.A.Run(t, "ip", "address", "add", "10.77.0.9/16", "dev", p.A.Ifname)
	p.A.Run(t, "ip", "address", "del", "10.77.0.9/24", "dev", p.A.Ifname)
	time.Sleep(4 * settle)
	is(link, "10.77.3.1", "", "10.77.0.9")
	nothing(t, i)

	// An address that another host already has never enters the table.
	p.A.Run(t, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/"+p.A.Ifname+"/accept_dad")
	p.A.Run(t, "ip", "address", "add", "fd77::2/64", "dev", p.A.Ifname)
	testenv.Wait(t, 5*time.Second, "the address to be found taken", func() bool {
		return strings.Contains(p.A.Run(t, "ip", "address", "show", "dev", p.A.Ifname), "dadfailed")
	})
	is(link, "10.77.3.1", "", "10.77.0.9")

	p.A.Run(t, "ip", "address", "flush", "dev", p.A.Ifname)
	for range 3 {
		next(t, i, GIDRemoved)
	}
	nothing(t, i)
	is()
}

// TestGone: a deleted interface stays gone, even if a new one gets its name.
func TestGone(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	k, err := i.Track(resolve(t, i, "10.77.0.1", "10.77.0.2"))
	testenv.Must(t, err)
	from, name := place(t, i, "10.77.0.1"), i.Name()
	ended := make(chan error, 1)
	go func() {
		_, err := i.Resolve(t.Context(), from, gid("10.77.0.99"))
		ended <- err
	}()
	p.A.Delete(t)
	for c := (Change{}); c.What != Gone; { // it goes down first
		c = await(t, i, Gone.String())
	}
	nothing(t, i)
	if err := <-ended; err == nil {
		t.Error("a way was found on an interface that went away")
	}
	p.A.Run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", "peer0")
	time.Sleep(4 * settle)
	_, err = i.Resolve(t.Context(), from, gid("10.77.0.2"))
	wantError(t, "resolve", err, ErrInterfaceGone)
	_, err = i.Track(Route{})
	wantError(t, "keep", err, ErrInterfaceGone)
	_, err = k.Route()
	wantError(t, "a way kept", err, ErrInterfaceGone)
	if i.Up() || i.Name() != name || len(i.GIDs()) != 0 {
		t.Errorf("gone, and %+v with %v", i.Link(), i.GIDs())
	}
	nothing(t, i)
}

// TestOverrun: if the kernel's messages overflow the socket, the Interface reads everything again.
func TestOverrun(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	if err := i.watch.socket.SetReceiveBufferSize(1, false); err != nil { // the kernel sets its minimum
		t.Fatal(err)
	}
	var batch strings.Builder
	for n := range 2000 {
		fmt.Fprintf(&batch, "neighbour replace 10.77.%d.%d lladdr 02:00:00:00:00:01 nud permanent dev %s\n", 1+n/250, 1+n%250, p.A.Ifname)
		if n == 1000 {
			fmt.Fprintf(&batch, "address del 10.77.0.1/24 dev %s\naddress add 10.66.0.1/8 dev %s\n", p.A.Ifname, p.A.Ifname)
		}
	}
	ipBatch(t, &p.A, batch.String())
	testenv.Wait(t, 5*time.Second, "the table to be right", func() bool {
		g := i.GIDs()
		return len(g) == 1 && g[0].GID == gid("10.66.0.1") && i.Counters().Overruns > 0
	})
	// It finds one neighbour among that many at once.
	if w := resolve(t, i, "10.66.0.1", "10.77.5.5"); w.DestinationMAC.String() != "02:00:00:00:00:01" {
		t.Errorf("%+v", w)
	}
	t.Logf("%+v", i.Counters())
}

// TestClose: concurrent calls of Close all succeed, and later calls fail.
func TestClose(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	k, err := i.Track(resolve(t, i, "10.77.0.1", "10.77.0.2"))
	testenv.Must(t, err)
	closed := make(chan error)
	for range 4 {
		go func() { closed <- i.Close() }()
	}
	for range 4 {
		testenv.Check(t, <-closed)
	}
	k.Drop()
	_, err = i.Track(Route{})
	wantError(t, "keep", err, errClosed)
	if c, ok := i.Next(); ok || i.FD() != -1 {
		t.Errorf("%+v, descriptor %d", c, i.FD())
	}
}
