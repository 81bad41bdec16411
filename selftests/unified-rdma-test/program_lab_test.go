//go:build lab

package main

import (
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestStorage has messages go over RDMA to the NVMe disk and back.
func TestStorage(t *testing.T) {
	p := newPlace(t)
	s := serveOn(t, p.asServer("-keep -force", labenv.Disk)...)
	cases := []string{"-size 4096 -n 40 -depth 8"}
	if !testing.Short() {
		cases = append(cases, "-n 100", "-size 1048576 -n 20 -depth 4", "-size 65536 -n 1 -json")
	}
	for _, c := range cases {
		out := asked(t, p.asClient(c)...)
		if !strings.Contains(out, "every byte as it should be") && !strings.Contains(out, `"ServerCopied": 0`) ||
			!strings.Contains(out, "the server's kernel copied 0 bytes") && !strings.Contains(c, "json") {
			t.Errorf("%s: %s; the server says\n%s", c, out, &s.out)
		}
	}
}

// sizes are those of the operations that take any; UD's end with the MTU, atomics are of 8.
var sizes = []int{0, 1, 255, 4096, 65537, 1 << 20}

// TestMatrix verifies every operation of every transport, in each size, and that a request for
// more is refused.
func TestMatrix(t *testing.T) {
	p := newPlace(t)
	s := serveOn(t, p.asServer("-keep", noDisk)...)
	n := matrix(t, p)
	s.end()
	if status := s.ended(); status != 0 || s.errs.String() != "" {
		t.Errorf("the server ends with %d: %s%s", status, &s.out, &s.errs)
	}
	t.Logf("%d runs, %s", n, s.out.String()[strings.LastIndex(s.out.String(), "ended"):])
}

// matrix is the client's side of TestMatrix; it returns how many runs it took.
func matrix(t *testing.T, p place) (n int) {
	for _, transport := range []rdma.Transport{rdma.RC, rdma.UC, rdma.UD} {
		for _, o := range ops {
			if !transport.Allows(o.op) {
				continue
			}
			for _, size := range sizesOf(o.op) {
				verified(t, p, transport, o.name, o.op, size)
				n++
			}
		}
	}
	return n
}

// sizesOf are the sizes of an operation, one in the short form.
func sizesOf(op rdma.Op) []int {
	switch {
	case isAtomic(op):
		return []int{8}
	case testing.Short():
		return []int{255}
	}
	return sizes
}

// beyondStatus is how a request for more than is allowed ends.
func beyondStatus(transport rdma.Transport, op rdma.Op) rdma.Status {
	switch {
	case transport != rdma.RC:
		return rdma.LocalLength
	case op == rdma.Send || op == rdma.SendImmediate:
		return rdma.RemoteOperation // of Soft-RoCE
	}
	return rdma.RemoteAccess
}

func verified(t *testing.T, p place, transport rdma.Transport, name string, op rdma.Op, size int) {
	t.Helper()
	n, depth := 20, 8
	if size > 4096 {
		n, depth = 5, 2
	}
	options := fmt.Sprintf("-test verify -beyond -transport %v -op %s -size %d -n %d -depth %d", transport, name, size, n, depth)
	status, out, errs := askFor(t, p.asClient(options)...)
	if transport == rdma.UD && size > p.mtu {
		if status != 1 || !strings.Contains(errs, rdma.LocalLength.String()) {
			t.Errorf("%s: status %d, %s%s", options, status, out, errs)
		}
		return
	}
	want := beyondStatus(transport, op).String()
	if status != 0 || errs != "" || !strings.Contains(out, "every byte as it should be") || !strings.Contains(out, "refused, as it must be: "+want) {
		t.Errorf("%s: status %d, %s%s", options, status, out, errs)
	}
}

// TestMeasured: latency and bandwidth come out in rows.
func TestMeasured(t *testing.T) {
	p := newPlace(t)
	serveOn(t, p.asServer("-keep", noDisk)...)
	cases := map[string]string{"-test latency -op write -n 100": "t_typical", "-test bandwidth -op send -size 4096 -n 100": "BW peak"}
	if !testing.Short() {
		for _, op := range []string{"send", "send-immediate", "write", "write-immediate", "read", "fetch-add", "compare-swap"} {
			cases["-test latency -n 200 -op "+op] = "t_typical"
			cases["-test bandwidth -n 200 -op "+op] = "BW peak"
		}
		cases["-test latency -transport UD -n 200"] = "t_typical"
		cases["-test latency -transport UC -n 200 -op write"] = "t_typical"
	}
	for options, want := range cases {
		if out := asked(t, p.asClient(options)...); !strings.Contains(out, want) {
			t.Errorf("%s: %s", options, out)
		}
	}
}

// TestUnnoticed: a server that sees nothing of what its client does waits for it as long as it works.
func TestUnnoticed(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form: it takes long because it is to; make lab has it")
	}
	const patience = 3 * time.Second
	p := newPlace(t)
	s := serveOn(t, p.asServer(fmt.Sprintf("-keep -timeout %v", patience), noDisk)...)
	for _, test := range []string{"bandwidth -op write -size 65536", "latency -op read", "verify -op fetch-add"} {
		took := time.Duration(0)
		for n := 100; took < patience+time.Second && !t.Failed(); n *= 4 {
			begin := time.Now()
			asked(t, p.asClient(fmt.Sprintf("-test %s -n %d", test, n))...)
			took = time.Since(begin)
		}
	}
	s.end()
	if s.ended(); !strings.Contains(s.out.String(), "served, 0 failed") {
		t.Errorf("%s", &s.out)
	}
}

// TestRefused: what cannot work is said, with what to check.
func TestRefused(t *testing.T) {
	p := newPlace(t)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no such interface": {[]string{"none0", p.device, noDisk, p.server}, "ip link lists them"},
		"wrong interface":   {[]string{"virtio1", p.device, noDisk, p.server}, "is a device of virtio0, not of IFACE virtio1"},
		"interface down":    {[]string{"igb0", p.device, noDisk, p.server}, "ip link set igb0 up"},
		"no such device":    {[]string{p.card, "rxe9", noDisk, p.server}, p.device},
		"no server":         {p.asClient("-timeout 2s"), "connection refused"},
		"no such GID":       {p.asClient("-gid 200"), "-gid 200"},
		"MTU":               {p.asClient("-mtu 1500"), "256, 512, 1024, 2048 or 4096"},
		"long datagram":     {p.asClient("-test verify -transport UD -size 1025"), rdma.LocalLength.String()},
	} {
		if status, out, errs := askFor(t, c.args...); status != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, %q does not say %q; %s", name, status, errs, c.want, out)
		}
	}
}

// TestServerGoesOn: a server with -keep survives clients that ask for what it does not have, that
// die, and that never were any; it says so, counts, and serves the next.
func TestServerGoesOn(t *testing.T) {
	p := newPlace(t)
	s := serveOn(t, p.asServer("-keep -timeout 1500ms", noDisk)...)
	if status, _, errs := askFor(t, p.asClient("-timeout 3s")...); status != 1 || !strings.Contains(errs, "without a disk") {
		t.Errorf("a server without a disk: status %d, %s", status, errs)
	}
	for _, bytes := range garbage() {
		throw(t, p, bytes)
	}
	killed(t, s, p)
	asked(t, p.asClient("-test verify -n 10")...)
	s.end()
	if status := s.ended(); status != 0 {
		t.Errorf("the server ends with %d: %s", status, &s.errs)
	}
	for _, want := range []string{"1 clients were served, 2 failed", "format ", "refused 1"} {
		if !strings.Contains(s.out.String(), want) {
			t.Errorf("the server does not say %q:\n%s", want, &s.out)
		}
	}
}

// garbage is what comes to an open port.
func garbage() [][]byte {
	random := make([]byte, 4096)
	_, _ = rand.Read(random)
	return [][]byte{random, []byte("GET / HTTP/1.0\r\n\r\n"), []byte("uRDM"), []byte("uRDM\x01\x01\xff\xff"), {0x16, 3, 1, 0, 1, 0}}
}

// throw sends bytes to the server and waits until it has closed.
func throw(t *testing.T, p place, bytes []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", p.server+":18516")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write(bytes)
	_ = conn.(*net.TCPConn).CloseWrite()
	_ = conn.SetReadDeadline(time.Now().Add(testenv.Within(4 * time.Second)))
	for buf := make([]byte, 4096); err == nil; {
		_, err = conn.Read(buf)
	}
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Errorf("the server does not close a connection with %q", bytes[:min(len(bytes), 16)])
	}
}

// killed has a client of the server killed in the middle.
func killed(t *testing.T, s *server, p place) {
	t.Helper()
	cmd := process(t, p.asClient("-test latency -n 10000000")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.says("10000000 messages")
	time.Sleep(300 * time.Millisecond)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	s.says("error: latency of send")
}

// TestClientGone: a server without -keep ends when its client is gone, and says what is wrong.
func TestClientGone(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form: a server with -keep has such a client there")
	}
	p := newPlace(t)
	s := serveOn(t, p.asServer("-timeout 3s", noDisk)...)
	cmd := process(t, p.asClient("-test latency -n 10000000")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.says("10000000 messages")
	time.Sleep(300 * time.Millisecond)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if status := s.ended(); status != 1 || !strings.Contains(s.errs.String(), "latency of send") {
		t.Errorf("status %d, %s%s", status, &s.out, &s.errs)
	}
}
