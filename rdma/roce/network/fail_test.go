package network

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestOpenRefuses: Open fails for names without an interface, and for interfaces that are not
// Ethernet.
func TestOpenRefuses(t *testing.T) {
	testenv.Leaks(t)
	ns := testenv.NewNamespace(t)
	open := func(name string) (err error) {
		ns.Do(t, func() { _, err = Open(name) })
		return err
	}
	for _, name := range []string{"nope", "", strings.Repeat("x", 5000), "a/b", "%s"} {
		if err := open(name); !errors.Is(err, ErrInterfaceGone) || len(err.Error()) > 300 {
			t.Errorf("open %.20q: %v", name, err)
		}
	}
	wantError(t, "open lo", open("lo"), ErrNotEthernet)
}

// TestResolveRefuses: Resolve fails for destinations without a route and for sources that do not
// exist.
func TestResolveRefuses(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{IPv6: true})
	p.A.Run(t, "ip", "link", "add", "other0", "type", "veth", "peer", "name", "other1")
	p.A.Run(t, "ip", "address", "add", "fd78::1/64", "dev", "other0")
	p.A.Run(t, "ip", "link", "set", "other0", "up")
	p.A.Run(t, "ip", "link", "set", "other1", "up")
	for _, r := range []string{"unreachable 10.78.0.0/16", "blackhole fd79::/64", "prohibit fd80::/64"} {
		p.A.Run(t, "ip", append([]string{"route", "add"}, strings.Fields(r)...)...)
	}
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	for _, c := range []struct {
		from, to string
		want     error
	}{
		{"10.77.0.1", "192.0.2.1", errNoRoute}, {"fd77::1", "2001:db8::1", errNoRoute}, {"10.77.0.1", "10.78.0.1", errNoRoute},
		{"fd77::1", "fd79::1", errNoRoute}, {"fd77::1", "fd80::1", errNoRoute}, {"fd77::1", "fd78::2", errNoRoute},
		{"10.77.0.1", "10.77.0.255", errNoRoute}, {"10.77.0.1", "0.0.0.0", errNoRoute}, {"fd77::1", "::", errNoRoute}, {"fd77::1", "::1", errNoRoute},
		{"10.77.0.1", "127.0.0.1", errNoRoute}, {"10.77.0.1", "255.255.255.255", errNoRoute},
		{"10.77.0.1", "fd77::2", errSource}, {"fd77::1", "10.77.0.2", errSource},
	} {
		_, err := tryResolve(t, i, c.from, c.to)
		wantError(t, c.from+" to "+c.to, err, c.want)
	}
	for _, empty := range []int{-1, 3, 255, 1 << 30} {
		_, err := i.Resolve(t.Context(), empty, gid("10.77.0.2"))
		wantError(t, "an empty place", err, errSource)
	}
}

// TestResolveUnanswered: Resolve ends when its context does, when the kernel gives up, and when the
// Interface is closed.
func TestResolveUnanswered(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{IPv6: true})
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	within(t, 30*time.Millisecond, func(ctx context.Context) {
		_, err := i.Resolve(ctx, place(t, i, "10.77.0.1"), gid("10.77.0.9"))
		wantError(t, "a deadline", err, errUnanswered)
		wantError(t, "a deadline", err, context.DeadlineExceeded)
	})
	p.A.Do(t, func() {
		for _, family := range []string{"ipv4", "ipv6"} {
			setting := "/proc/sys/net/" + family + "/neigh/" + p.A.Ifname + "/retrans_time_ms"
			testenv.Must(t, os.WriteFile(setting, []byte("10"), 0))
		}
	})
	for from, to := range map[string]string{"10.77.0.1": "10.77.0.10", "fd77::1": "fd77::10"} {
		for range 2 { // the second time, the kernel asks again after a failure
			_, err := tryResolve(t, i, from, to)
			wantError(t, to, err, errUnanswered)
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := i.Resolve(context.Background(), place(t, i, "10.77.0.1"), gid("10.77.0.11"))
		ended <- err
	}()
	time.Sleep(5 * time.Millisecond)
	i.Close()
	wantError(t, "closed meanwhile", <-ended, errClosed)
	_, err := i.Resolve(t.Context(), 0, gid("10.77.0.2"))
	wantError(t, "closed before", err, errClosed)
}

func within(t *testing.T, limit time.Duration, f func(context.Context)) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	f(ctx)
}

// TestWithoutPermission: a thread without CAP_NET_ADMIN can resolve only the neighbours that the
// kernel knows.
func TestWithoutPermission(t *testing.T) {
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	i := openIn(t, p.A.Namespace, p.A.Ifname)
	from := place(t, i, "10.77.0.1")
	resolve(t, i, "10.77.0.1", "10.77.0.2")
	p.A.Run(t, "ip", "neighbour", "change", "10.77.0.2", "nud", "stale", "dev", p.A.Ifname)
	ended := make(chan error, 2)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for _, to := range []string{"10.77.0.2", "10.77.0.3"} {
			err := withoutNetAdmin()
			if err == nil {
				_, err = i.Resolve(context.Background(), from, gid(to))
			}
			ended <- err
		}
	}()
	testenv.Checkf(t, <-ended, "a neighbour that the kernel knows")
	wantError(t, "one that it does not know", <-ended, errPermission)
}

// withoutNetAdmin takes CAP_NET_ADMIN from the calling thread.
func withoutNetAdmin() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	sets[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	return unix.Capset(&header, &sets[0])
}
