package multicast

import (
	"bufio"
	"errors"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// heard is what tcpdump prints about messages of IGMP and MLD at one end.
type heard struct {
	mu    sync.Mutex
	lines []string
}

// listen starts tcpdump, which is another program than the one that is tested.
func listen(t *testing.T, e *testenv.End) *heard {
	t.Helper()
	testenv.Tool(t, "tcpdump")
	cmd := e.Command("tcpdump", "-l", "-n", "-e", "-vv", "-i", e.Ifname, "igmp or (ip6[6] = 0) or vlan")
	out, err := cmd.StdoutPipe()
	testenv.Must(t, err)
	said, err := cmd.StderrPipe()
	testenv.Must(t, err)
	testenv.Must(t, cmd.Start())
	h := &heard{}
	var reading sync.WaitGroup
	reading.Go(func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			h.mu.Lock()
			h.lines = append(h.lines, s.Text())
			h.mu.Unlock()
		}
	})
	t.Cleanup(func() { _ = cmd.Process.Kill(); reading.Wait(); _ = cmd.Wait() })
	for s := bufio.NewScanner(said); s.Scan(); {
		if strings.Contains(s.Text(), "listening on") {
			go func() { // so that it never blocks
				for s.Scan() {
				}
			}()
			return h
		}
	}
	t.Fatal("tcpdump does not listen")
	return nil
}

// count returns how many lines have all of these words.
func (h *heard) count(words ...string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
lines:
	for _, l := range h.lines {
		for _, w := range words {
			if !strings.Contains(l, w) {
				continue lines
			}
		}
		n++
	}
	return n
}

// await waits until a line has all of these words.
func (h *heard) await(t *testing.T, words ...string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); h.count(words...) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			h.mu.Lock()
			defer h.mu.Unlock()
			t.Fatalf("there is no message with %q among:\n%s", words, strings.Join(h.lines, "\n"))
		}
	}
}

// forget forgets what was heard.
func (h *heard) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = nil
}

func pair(t *testing.T) *testenv.Pair {
	t.Helper()
	testenv.Root(t)
	return testenv.NewPair(t, testenv.PairOptions{IPv6: true})
}

func must(t *testing.T, err error) {
	t.Helper()
	testenv.Must(t, err)
}

var (
	any4    = netip.MustParseAddr("239.1.2.3")
	other4  = netip.MustParseAddr("239.1.2.4")
	ssm4    = netip.MustParseAddr("232.1.2.3")
	source4 = netip.MustParseAddr("10.9.9.9")
	any6    = netip.MustParseAddr("ff15::1:2:3")
	ssm6    = netip.MustParseAddr("ff35::1:2:3")
	source6 = netip.MustParseAddr("2001:db8::9")
)

// TestReports: another host hears by IGMPv3 and MLDv2 that groups and sources are joined, what changes, and that the
// groups are left.
func TestReports(t *testing.T) {
	p := pair(t)
	h := listen(t, &p.A)
	var s Set
	on := p.B.Ifname
	joins := []Join{{on, any4, netip.Addr{}}, {on, ssm4, source4}, {on, any6, netip.Addr{}}, {on, ssm6, source6}}
	p.B.Do(t, func() { must(t, s.Open(joins)) })
	h.await(t, "igmp v3 report", "gaddr 239.1.2.3 to_ex")
	h.await(t, "igmp v3 report", "gaddr 232.1.2.3 allow { 10.9.9.9 }")
	h.await(t, "multicast listener report v2", "gaddr ff15::1:2:3 to_ex")
	h.await(t, "multicast listener report v2", "gaddr ff35::1:2:3 allow { 2001:db8::9 }")
	if all := s.States(); len(all) != 4 || all[1].Join != joins[1] || all[1].Err != nil {
		t.Errorf("the states are %v", all)
	}
	h.forget()
	next := []Join{joins[0], {on, other4, netip.Addr{}}}
	p.B.Do(t, func() { must(t, s.Update(next)) })
	h.await(t, "gaddr 239.1.2.4 to_ex")
	h.await(t, "gaddr 232.1.2.3 block { 10.9.9.9 }")
	h.await(t, "gaddr ff15::1:2:3 to_in")
	h.await(t, "gaddr ff35::1:2:3 block { 2001:db8::9 }")
	if n := h.count("239.1.2.3 to_in"); n > 0 {
		t.Errorf("a group that stays was left %d times", n)
	}
	must(t, s.Close())
	h.await(t, "gaddr 239.1.2.3 to_in")
	h.await(t, "gaddr 239.1.2.4 to_in")
	if err := s.Update(joins); err != nil || len(s.States()) != 0 {
		t.Errorf("a closed set joins: %v, %v", s.States(), err)
	}
}

// TestAnswers: the kernel answers a querier for the groups of a set, and no longer for those that are left.
func TestAnswers(t *testing.T) {
	p := pair(t)
	h := listen(t, &p.A)
	var s Set
	p.B.Do(t, func() { must(t, s.Open([]Join{{p.B.Ifname, any4, netip.Addr{}}, {p.B.Ifname, ssm4, source4}})) })
	h.await(t, "239.1.2.3 to_ex")
	h.forget()
	ask(t, &p.A)
	h.await(t, "igmp v3 report", "239.1.2.3 is_ex")
	h.await(t, "igmp v3 report", "232.1.2.3 is_in { 10.9.9.9 }")
	must(t, s.Close())
	h.await(t, "239.1.2.3 to_in")
	h.forget()
	ask(t, &p.A)
	testenv.Wait(t, 5*time.Second, "the query", func() bool { return h.count("igmp query") > 0 })
	time.Sleep(time.Second)
	if n := h.count("239.1.2.3 is_ex"); n > 0 {
		t.Error("the kernel still answers for a group that was left")
	}
}

// ask sends a general query of IGMPv3 that is to be answered within 0.5 s.
func ask(t *testing.T, e *testenv.End) {
	t.Helper()
	e.Do(t, func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_IGMP)
		must(t, err)
		defer unix.Close(fd)
		must(t, unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 1))
		must(t, unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(e.Index)}))
		must(t, unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, "\x94\x04\x00\x00")) // router alert
		must(t, unix.Sendto(fd, []byte("\x11\x05\xec\xfa\x00\x00\x00\x00\x02\x00\x00\x00"), 0, &unix.SockaddrInet4{Addr: [4]byte{224, 0, 0, 1}}))
	})
}

// TestReplaced: groups are joined again when their interface was removed and made again, more often than one socket
// may have memberships. Until then the set says why they are not.
func TestReplaced(t *testing.T) {
	p := pair(t)
	h := listen(t, &p.A)
	add := func() {
		p.B.Run(t, "ip", "link", "add", "link", p.B.Ifname, "name", "feed", "type", "macvlan", "mode", "private")
		p.B.Run(t, "ip", "link", "set", "feed", "up")
	}
	add()
	var s Set
	p.B.Do(t, func() {
		must(t, s.Open([]Join{{"feed", any4, netip.Addr{}}, {"feed", ssm4, source4}, {"feed", any6, netip.Addr{}}}))
	})
	defer s.Close()
	h.await(t, "igmp v3 report", "239.1.2.3 to_ex")
	for range 22 {
		p.B.Run(t, "ip", "link", "del", "feed")
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), "feed") || s.States()[0].Err == nil {
			t.Fatalf("without the interface: %v", err)
		}
		add()
		h.forget()
		must(t, s.Check())
	}
	h.await(t, "igmp v3 report", "239.1.2.3 to_ex")
	h.await(t, "igmp v3 report", "232.1.2.3 allow { 10.9.9.9 }")
	h.await(t, "multicast listener report v2", "ff15::1:2:3 to_ex")
}

// TestManyGroups: a set may have more groups, and more sources of one, than a socket.
func TestManyGroups(t *testing.T) {
	p := pair(t)
	var joins []Join
	for i := range 120 {
		j := Join{p.B.Ifname, netip.AddrFrom4([4]byte{239, 7, 0, byte(i)}), netip.Addr{}}
		if i >= 60 { // last, because mcfilter begins with the newest group, and ends if it has no sources
			j.Group, j.Source = ssm4, netip.AddrFrom4([4]byte{10, 9, 0, byte(i)})
		}
		joins = append(joins, j)
	}
	var s Set
	p.B.Do(t, func() { must(t, s.Open(joins)) })
	p.B.Do(t, func() {
		b, err := os.ReadFile("/proc/thread-self/net/igmp")
		must(t, err)
		if n := strings.Count(string(b), "07EF"); n != 60 { // 239.7 as the kernel prints it
			t.Errorf("the kernel has %d of 60 groups:\n%s", n, b)
		}
		b, err = os.ReadFile("/proc/thread-self/net/mcfilter")
		must(t, err)
		if n := strings.Count(string(b), "0xe8010203 0x0a0900"); n != 60 {
			t.Errorf("the kernel has %d of 60 sources:\n%s", n, b)
		}
	})
	must(t, s.Close())
}

// TestRefused: a join that is not possible leaves nothing behind, and its error has the remedy.
func TestRefused(t *testing.T) {
	p := pair(t)
	fds := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(all)
	}
	p.B.Do(t, func() {
		before := fds()
		var s Set
		err := s.Open([]Join{{p.B.Ifname, any4, netip.Addr{}}, {"absent.5", any4, netip.Addr{}}})
		if !errors.Is(err, unix.ENODEV) && (err == nil || !strings.Contains(err.Error(), "ip link add link PARENT name absent.5")) {
			t.Errorf("an interface that is not there: %v", err)
		}
		must(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+p.B.Ifname+"/disable_ipv6", []byte("1"), 0))
		if err := s.Open([]Join{{p.B.Ifname, any6, netip.Addr{}}}); err == nil || !strings.Contains(err.Error(), "disable_ipv6=0") {
			t.Errorf("an interface without IPv6: %v", err)
		}
		if after := fds(); after != before || len(s.States()) != 0 {
			t.Errorf("%d descriptors, %d before; %v", after, before, s.States())
		}
	})
}

// TestKilled: when a process is killed, the kernel leaves its groups.
func TestKilled(t *testing.T) {
	if on := os.Getenv("UNIFIEDD_JOIN_ON"); on != "" {
		var s Set
		must(t, s.Open([]Join{{on, any4, netip.Addr{}}, {on, ssm6, source6}}))
		select {}
	}
	p := pair(t)
	h := listen(t, &p.A)
	cmd := p.B.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), "UNIFIEDD_JOIN_ON="+p.B.Ifname)
	must(t, cmd.Start())
	h.await(t, "239.1.2.3 to_ex")
	h.await(t, "ff35::1:2:3 allow { 2001:db8::9 }")
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	h.await(t, "239.1.2.3 to_in")
	h.await(t, "ff35::1:2:3 block { 2001:db8::9 }")
}

// TestListen: the querier of a bridge is heard within seconds, of IGMP and of MLD. A link without one says so.
func TestListen(t *testing.T) {
	testenv.Root(t)
	all := testenv.NewSwitch(t, 1, testenv.PairOptions{IPv6: true})
	e := all[0]
	hear := func(v6 bool) (q Querier, err error) {
		e.Do(t, func() { q, err = Listen(e.Ifname, v6, 2*time.Second) })
		return q, err
	}
	for _, v6 := range []bool{false, true} {
		if q, err := hear(v6); !errors.Is(err, ErrNoQuerier) {
			t.Errorf("without a querier: %+v, %v", q, err)
		}
	}
	e.Query(t)
	q, err := hear(false)
	if err != nil || !strings.HasPrefix(q.Protocol, "IGMPv") || q.After > 2*time.Second {
		t.Errorf("with a querier of IGMP: %+v, %v", q, err)
	}
	q6, err := hear(true)
	if err != nil || !strings.HasPrefix(q6.Protocol, "MLDv") || !q6.Address.IsLinkLocalUnicast() {
		t.Errorf("with a querier of MLD: %+v, %v", q6, err)
	}
	t.Logf("%+v, %+v", q, q6)
}
