package main

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// storage: messages go over RDMA to a disk and back, and every byte is correct.
func storage(t *testing.T, p place, disk string, cases []string) {
	s := p.serveOn(t, p.asServer("-keep -force", disk)...)
	for _, c := range cases {
		out := p.asked(t, p.asClient(c)...)
		if !strings.Contains(out, "every byte as it should be") && !strings.Contains(out, `"ServerCopied": 0`) ||
			!strings.Contains(out, "the server's kernel copied 0 bytes") && !strings.Contains(c, "json") {
			t.Errorf("%s: %s; the server says\n%s", c, out, &s.Out)
		}
	}
}

// measured: the program prints latency and bandwidth in rows.
func measured(t *testing.T, p place) {
	p.serveOn(t, p.asServer("-keep", noDisk)...)
	cases := map[string]string{"-test latency -op write -n 100": "t_typical", "-test bandwidth -op send -size 4096 -n 100": "BW peak"}
	if p.whole {
		for _, op := range []string{"send", "send-immediate", "write", "write-immediate", "read", "fetch-add", "compare-swap"} {
			cases["-test latency -n 200 -op "+op] = "t_typical"
			cases["-test bandwidth -n 200 -op "+op] = "BW peak"
		}
		cases["-test latency -transport UD -n 200"] = "t_typical"
		cases["-test latency -transport UC -n 200 -op write"] = "t_typical"
	}
	for options, want := range cases {
		if out := p.asked(t, p.asClient(options)...); !strings.Contains(out, want) {
			t.Errorf("%s: %s", options, out)
		}
	}
}

// unnoticed: a server that sees nothing of its client's work waits for the client as long as it works.
func unnoticed(t *testing.T, p place) {
	const replyTimeout = 3 * time.Second
	s := p.serveOn(t, p.asServer(fmt.Sprintf("-keep -timeout %v", replyTimeout), noDisk)...)
	for _, test := range []string{"bandwidth -op write -size 65536", "latency -op read", "verify -op fetch-add"} {
		took := time.Duration(0)
		for n := 100; took < replyTimeout+time.Second && !t.Failed(); n *= 4 {
			begin := time.Now()
			p.asked(t, p.asClient(fmt.Sprintf("-test %s -n %d", test, n))...)
			took = time.Since(begin)
		}
	}
	if s.ended(); !strings.Contains(s.Out.String(), "served, 0 failed") {
		t.Errorf("%s", &s.Out)
	}
}

// serverGoesOn: a server with -keep survives clients that ask for what it does not have, clients that die,
// and connections of other programs. It reports and counts them, and serves the next client.
func serverGoesOn(t *testing.T, p place) {
	s := p.serveOn(t, p.asServer("-keep -timeout 1500ms", noDisk)...)
	if status, _, errs := p.askFor(t, p.asClient("-timeout 3s")...); status != 1 || !strings.Contains(errs, "without a disk") {
		t.Errorf("a server without a disk: status %d, %s", status, errs)
	}
	for _, bytes := range garbage() {
		throw(t, p, bytes)
	}
	killed(t, s, p)
	p.asked(t, p.asClient("-test verify -n 10")...)
	if status := s.ended(); status != 0 {
		t.Errorf("the server ends with %d: %s", status, &s.Errs)
	}
	for _, want := range []string{"1 clients were served, 2 failed", "format ", "refused 1"} {
		if !strings.Contains(s.Out.String(), want) {
			t.Errorf("the server does not say %q:\n%s", want, &s.Out)
		}
	}
}

// garbage returns bytes that another program might send to an open port.
func garbage() [][]byte {
	random := make([]byte, 4096)
	_, _ = rand.Read(random)
	return [][]byte{random, []byte("GET / HTTP/1.0\r\n\r\n"), []byte("uRDM"), []byte("uRDM\x01\x01\xff\xff"), {0x16, 3, 1, 0, 1, 0}}
}

// throw sends bytes to the server and waits until the server closes the connection.
func throw(t *testing.T, p place, bytes []byte) {
	t.Helper()
	conn, err := p.dial(t)
	testenv.Must(t, err)
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

// killed kills a client of the server during a test.
func killed(t *testing.T, s *server, p place) {
	t.Helper()
	sent := p.sent(t)
	c := p.run(t, p.asClient("-test latency -n 10000000")...)
	s.Says("10000000 messages")
	testenv.Wait(t, 10*time.Second, "its packets", func() bool { return p.sent(t) > sent+100 })
	c.Signal(os.Kill)
	s.Says("error: latency of send")
}

// dial connects to the server's port.
func (p place) dial(t *testing.T) (conn net.Conn, err error) {
	dial := func() { conn, err = net.Dial("tcp", p.server+":18516") }
	if p.in != nil {
		p.in.Do(t, dial)
	} else {
		dial()
	}
	return conn, err
}

// clientGone: a server without -keep ends when its client is gone, and reports the cause.
func clientGone(t *testing.T, p place) {
	s := p.serveOn(t, p.asServer("-timeout 3s", noDisk)...)
	c := p.run(t, p.asClient("-test latency -n 10000000")...)
	s.Says("10000000 messages")
	time.Sleep(300 * time.Millisecond)
	c.Signal(os.Kill)
	s.Fails(1, "latency of send")
}
