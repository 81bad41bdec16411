package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// liveSocket is a packet socket that receives what arrives at an end.
func liveSocket(t *testing.T, e *testenv.End) int {
	t.Helper()
	fd := -1
	e.Do(t, func() {
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			t.Fatalf("open a packet socket: %v", err)
		}
	})
	t.Cleanup(func() { unix.Close(fd) })
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8
	for _, err := range []error{
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: e.Index}),
	} {
		testenv.Must(t, err)
	}
	return fd
}

// attach sets the filter of a socket.
func attach(t *testing.T, fd int, ins []unix.SockFilter) error {
	t.Helper()
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(ins)), Filter: &ins[0]})
}

// liveTcpdump returns tcpdump's program for an interface; nil: it refuses the expression since no packet
// satisfies it.
func liveTcpdump(t *testing.T, e *testenv.End, text string) (ins []unix.SockFilter) {
	t.Helper()
	cmd := e.Command(testenv.Tool(t, "tcpdump"), "-ddd", "-i", e.Ifname, "--", text)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if strings.Contains(stderr.String(), "rejects all packets") {
		return nil
	}
	if err != nil {
		t.Fatalf("tcpdump %q: %v\n%s", text, err, &stderr)
	}
	for line := range strings.Lines(string(out)) {
		var i unix.SockFilter
		if n, _ := fmt.Sscan(line, &i.Code, &i.Jt, &i.Jf, &i.K); n == 4 {
			ins = append(ins, i)
		}
	}
	return ins
}

// received returns everything that waits in a socket.
func received(fd int) (all []string) {
	b := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_TRUNC)
		if err != nil {
			return all
		}
		all = append(all, string(b[:min(n, len(b))]))
	}
}

// liveCase compares our program with tcpdump's for one expression on packets that arrive, with tags beside
// them. It returns how many packets tcpdump's accepts.
func liveCase(t *testing.T, p *testenv.Pair, ours, theirs int, text string, packets [][]byte) int {
	t.Helper()
	e, err := filter.Parse(text)
	want := liveTcpdump(t, &p.B, text)
	if errors.Is(err, filter.ErrRejectsAll) || want == nil {
		return 0
	}
	if err != nil {
		t.Errorf("%q: %v", text, err)
		return 0
	}
	ins, err := e.Socket(1 << 18)
	if err != nil {
		t.Errorf("%q: %v", text, err)
		return 0
	}
	if err := attach(t, theirs, want); err != nil {
		t.Logf("%q: the kernel refuses tcpdump's program: %v", text, err)
		return 0
	}
	if err := attach(t, ours, ins); err != nil {
		t.Errorf("%q: the kernel refuses the program: %v", text, err)
		return 0
	}
	received(ours)
	received(theirs)
	testenv.SendRaw(t, &p.A, packets, testenv.SendOptions{})
	a, b := received(ours), received(theirs)
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Errorf("%q (%s): we accept %d packets, tcpdump %d; they differ in packet %d", text, e, len(a), len(b), i)
			break
		}
	}
	return len(b)
}

// TestAgreesWithTcpdumpLive compares with tcpdump, and so libpcap, on packets that arrive at an interface: the
// kernel has removed the outermost VLAN tag from them.
func TestAgreesWithTcpdumpLive(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	r := rand.New(rand.NewPCG(15, 16))
	packets := append(append(malformed(r), typical()...), frames(r)...)
	for len(packets) < 400 {
		packets = append(packets, randomPlain(r), randomAny(r), randomLayered(r))
	}
	packets = sendable(packets)
	ours, theirs := liveSocket(t, &p.B), liveSocket(t, &p.B)
	both, texts := 0, expressions(t, "expressions.txt")
	texts = append(texts, "(ip or vlan) and tcp", "vlan and vlan", "not vlan and ip", "vlan 5 or vlan 7", "ip or vlan and udp", "vlan and (tcp or vlan)", "tcp or (vlan and udp) or arp",
		"vlan and ip6", "vlan and mpls", "vlan and pppoes and ip", "not (vlan and tcp) and ip")
	for _, text := range texts {
		if strings.Contains(text, "protochain") { // its program has a loop, which the kernel refuses
			e, err := filter.Parse(text)
			testenv.Must(t, err)
			if _, err := e.Socket(1); err == nil {
				t.Errorf("%q has a program for a socket", text)
			}
			continue
		}
		if n := liveCase(t, p, ours, theirs, text, packets); n > 0 && n < len(packets) {
			both++
		} else {
			t.Logf("%q accepts %d of %d", text, n, len(packets))
		}
	}
	if both < len(texts)*8/10 {
		t.Errorf("only %d of %d filters accepted some packets and rejected others: the test shows little", both, len(texts))
	}
	for range 40 {
		text := randomExpression(r, 3, randomTest)
		if !strings.Contains(text, "protochain") {
			liveCase(t, p, ours, theirs, text, packets)
		}
	}
}

// sendable leaves out packets that have no whole Ethernet header, which no socket sends.
func sendable(all [][]byte) (some [][]byte) {
	for _, p := range all {
		if len(p) >= 14 {
			some = append(some, p)
		}
	}
	return some
}

// TestSocketPrograms: the kernel takes a program with long jumps, and the largest; a larger one is refused
// with the remedy. The empty expression accepts everything.
func TestSocketPrograms(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	fd := liveSocket(t, &p.B)
	hosts := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("host 10.%d.%d.1", i/250, i%250))
		}
		return "(" + strings.Join(all, " or ") + ") and udp"
	}
	for _, text := range []string{"", hosts(10), hosts(100), "ip[2:2] / udp[0] = 1 or udp"} {
		e, err := filter.Parse(text)
		testenv.Must(t, err)
		ins, err := e.Socket(96)
		if err != nil {
			t.Errorf("%.40q: %v", text, err)
			continue
		}
		testenv.Checkf(t, attach(t, fd, ins), "%.40q, %d instructions", text, len(ins))
	}
	e, err := filter.Parse(hosts(2000))
	testenv.Must(t, err)
	if _, err := e.Socket(96); !errors.Is(err, filter.ErrTooLarge) {
		t.Errorf("a program that is too large: %v", err)
	}
	raw, err := filter.ParseFor(linktype.RawIP, "udp port 53")
	testenv.Must(t, err)
	if ins, err := raw.Socket(96); err != nil || attach(t, fd, ins) != nil {
		t.Errorf("packets without Ethernet headers: %v", err)
	}
}
