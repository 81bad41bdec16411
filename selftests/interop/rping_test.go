package interop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// rping connects through rdma_cm: the kernel's connection manager against ours. Only the long form
// runs it.
func (b *bench) rping(t *testing.T) {
	b.run(t, "modprobe rdma_ucm")
	for _, here := range []string{b.tap.IP.String(), b.tap.IP6.String()} {
		t.Run("client of "+here, func(t *testing.T) { b.rpingAsClient(t, here) })
	}
	t.Run("server", b.rpingAsServer)
	t.Run("refused", b.rpingRefused)
}

// rpingOptions are ours, and rpingLine is what rping prints for the last ping.
const (
	rpingOptions = "-peer rping -n 10 -size 1000 -qp-timeout 18 -timeout 60s"
	rpingLine    = "ping data: rdma-ping-9: "
)

func (b *bench) rpingAsClient(t *testing.T, here string) {
	s := b.ours(t, limit, rpingOptions, "server")
	s.says(t, "waiting for")
	said := b.run(t, "rping -c -a "+here+" -C 10 -S 1000 -V -v")
	s.ended(t)
	if !strings.Contains(said, rpingLine) || !strings.Contains(s.said.String(), "10 pings") {
		t.Errorf("rping:\n%sours:\n%s", said, s.said)
	}
}

// rpingAsServer does not judge rping's status, which is the same for an end and for a failure.
func (b *bench) rpingAsServer(t *testing.T) {
	out := new(daemon.Log)
	ended := make(chan func(), 1)
	go func() {
		r, err := b.try(fmt.Sprintf("rping -s -a %v -S 1000 -v & server=$!; sleep 3; echo it listens; wait $server || true", b.tap.PeerIP), limit, out)
		ended <- func() { judge(t, "rping", r, err, out) }
	}()
	defer func() { (<-ended)() }() // the guest runs one command at a time
	testenv.Wait(t, limit, "rping to listen", func() bool { return strings.Contains(out.String(), "it listens") })
	s := b.ours(t, limit, rpingOptions, b.tap.PeerIP.String())
	s.ended(t)
	if !strings.Contains(s.said.String(), "10 pings") {
		t.Errorf("rping:\n%sours:\n%s", out, s.said)
	}
}

// rpingRefused: each side reports that no program listens at the other.
func (b *bench) rpingRefused(t *testing.T) {
	s := b.ours(t, limit, "-peer rping -timeout 60s", b.tap.PeerIP.String())
	err := <-s.status
	s.status <- err
	if err == nil || !strings.Contains(s.said.String(), "check that a program listens") {
		t.Errorf("ours: %v\n%s", err, s.said)
	}
}
