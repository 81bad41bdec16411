package group

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// TestHostilePorts: a host without a certificate sends garbage to both ports of each member and keeps many
// connections open, and more clients come than fit. All of it is refused and counted, and the group goes on
// in its epoch.
func TestHostilePorts(t *testing.T) {
	testenv.Root(t)
	r := newRoster(t, 3, 3, -1, time.Second)
	leader, epoch := r.leader(0)
	r.load()
	r.committed(100)
	e := r.ends[3]
	e.Do(t, func() {
		for i := range r.now {
			for _, port := range []int{7471, 7491} {
				for n := range 40 {
					c, err := net.DialTimeout("tcp", net.JoinHostPort(r.ends[i].IP.String(), fmt.Sprint(port)), time.Second)
					if err != nil {
						continue // the port is full of them
					}
					t.Cleanup(func() { _ = c.Close() })
					_, _ = c.Write(garbage(n)) // the member may have ended the connection
				}
			}
		}
	})
	var many []*daemon.Client
	certificate, key := issue(t, r.secret, "client", e)
	for range 6 {
		many = append(many, daemon.StartClient(t, flowTest, e, "append", "-tls", strings.Join([]string{certificate, key, r.secret.File()}, ","), "-device", "roce:"+e.Ifname, "-ordinary", "-receive-ring", "64", "-memory", fmt.Sprint(16<<20),
			"-to", r.ends[leader].IP.String()+":7471", "-flow", "orders", "-count", "1", "-timeout", "5s"))
	}
	r.committed(500)
	for _, c := range many {
		c.Kill()
	}
	refused := uint64(0)
	for i, d := range r.now {
		s, err := d.Status()
		testenv.Must(t, err)
		g := s.Flows[0].Group
		t.Logf("member %d has refused %d", i+1, g.Refused)
		refused += g.Refused
		if g.Refused == 0 {
			t.Errorf("member %d has refused nothing", i+1)
		}
	}
	if _, now := r.leader(0); now != epoch {
		t.Errorf("epoch %d was led before, and %d is now", epoch, now)
	}
	r.finish(0, 1, 2)
}

// garbage is what a hostile host sends: nothing, noise, and frames of elections with impossible lengths.
func garbage(n int) []byte {
	b := make([]byte, 64)
	_, _ = rand.Read(b) // never fails
	switch n % 4 {
	case 0:
		return nil
	case 1:
		binary.LittleEndian.PutUint32(b, ^uint32(0))
	case 2:
		binary.LittleEndian.PutUint32(b, 16)
	}
	return b
}
