package group

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// submits is how many messages a program submits, submitRate how many a second, and firstSubmits and thenSubmits those
// of a program that comes back with its session.
const submits, submitRate, firstSubmits, thenSubmits = 20000, 1000, 300, 200

// attachedText is the configuration of a daemon whose programs append to the group.
func (r *roster) attachedText() string {
	i := r.relay
	certificate, key := r.issue(i)
	return fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
tls: {certificate: %s, key: %s, authority: %s}
attach:
  socket: %s
  programs: [{name: writer, user: "%d", out: 4MiB}]
flows:
  - name: orders
    from: {attach: writer, message: 1KiB}
    to:
      rdma: "roce:%s"
      acknowledge: all
      peers:
        - {name: log, address: "%s:7471", others: ["%s:7471", "%s:7471"], flow: orders}
`, certificate, key, r.secret.File(), r.socket(), os.Getuid(), r.ends[i].Ifname, r.ends[0].IP, r.ends[1].IP, r.ends[2].IP)
}

func (r *roster) socket() string { return filepath.Join(r.dirs[r.relay], "attach.sock") }

// host starts the daemon to which programs attach.
func (r *roster) host() {
	r.Helper()
	r.now[r.relay] = daemon.Launch(r.T, program, r.ends[r.relay], r.dirs[r.relay], r.attachedText())
	r.explain(r.relay, r.now[r.relay])
}

// advanced waits until the leader has committed some more records of a client that appends by itself.
func (r *roster) advanced(more uint64) {
	r.Helper()
	who, _ := r.leader(0)
	before := r.position(who)
	testenv.Wait(r.T, testenv.Within(30*time.Second), "more records to be committed", func() bool { return r.position(who) >= before+more })
}

// TestAttached: a program appends to a group through the daemon of its host. Leaders and that daemon are killed, and
// each message is in the log once. A program that comes back with its session learns which message is next from the
// group, also when the daemon of its host is new.
func TestAttached(t *testing.T) {
	testenv.Long(t, "TestFailOver has a client that is not attached")
	testenv.Root(t)
	r := newRoster(t, 4, 3, -1, soon)
	r.relay = 3
	r.host()
	r.leader(0)
	r.submit(1, firstSubmits)
	r.now[3].Kill()
	r.host()
	r.submit(firstSubmits+1, thenSubmits)
	r.client = daemon.StartClient(t, flowTest, r.ends[3], "submit", "-socket", r.socket(), "-as", "writer", "-flow", "orders", "-size", "64", "-depth", "64",
		"-count", fmt.Sprint(submits), "-rate", fmt.Sprint(submitRate), "-timeout", "10m")
	r.count = submits + firstSubmits + thenSubmits
	met := 0 // faults that the program has met
	for round := 0; round < 2 && !r.client.Over(); round++ {
		r.advanced(submitRate / 4)
		leader, epoch := r.leader(0)
		r.now[leader].Kill()
		r.now[leader] = nil
		r.leader(epoch)
		r.advanced(submitRate / 4)
		r.start(leader)
		if !r.client.Over() { // on a slow machine the second one may come too late
			met++
		}
		r.now[3].Kill()
		r.host()
	}
	if met == 0 {
		t.Errorf("the program has ended before the faults:\n%s", r.client.Out.String())
	}
	r.finish(0, 1, 2)
}

// submit appends messages from a sequence on as a program with a session that it keeps.
func (r *roster) submit(from, count uint64) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), testenv.Within(30*time.Second))
	defer cancel()
	k, s := r.attach(ctx)
	defer func() {
		if err := errors.Join(s.Close(), k.Close()); err != nil {
			r.Error(err)
		}
	}()
	if s.Next() != from {
		r.Fatalf("the next message of the session is %d, want %d", s.Next(), from)
	}
	var done [64]attached.Receipt
	for sent, safe := uint64(0), uint64(0); safe < count; {
		for sent < count {
			f, err := s.Claim()
			if err != nil {
				break
			}
			harness.Fill(f.Data[:64], 1, from+sent)
			if _, err := s.Commit(f, 64); err != nil {
				r.Fatal(err)
			}
			sent++
		}
		n, err := s.Poll(done[:])
		for _, one := range done[:n] {
			if one.Err != nil {
				r.Fatal(one.Err)
			}
		}
		if safe += uint64(n); n == 0 || err != nil {
			testenv.Must(r, s.Wait(ctx, time.Second))
		}
	}
}

// attach attaches with a session that is kept. Until the daemon runs, it tries again.
func (r *roster) attach(ctx context.Context) (k *attached.Client, s *attached.Sender) {
	r.Helper()
	testenv.Wait(r.T, testenv.Within(30*time.Second), "the program to attach", func() bool {
		var err error
		if k, err = attached.Attach(attached.Config{Socket: r.socket(), Name: "writer", Session: 77}); err != nil {
			return false
		}
		if s, err = k.Send("orders", 0); err != nil {
			r.Log(err)
			_ = k.Close()
			return ctx.Err() != nil
		}
		return true
	})
	if s == nil {
		r.Fatal("the program has no port")
	}
	return k, s
}
