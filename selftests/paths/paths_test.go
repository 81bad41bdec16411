package paths

import (
	"cmp"
	"os"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
)

// TestRelay: a relay whose path to a log fails under traffic goes on over another one, and comes back when it is well.
// The log has each message once.
func TestRelay(t *testing.T) {
	for _, c := range []struct{ name, method string }{{"send", "send"}, {"write", "write"}, {"link", "send"}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			fail := func() (mend func()) { return r.cut(0, log) }
			if c.name == "link" {
				fail = func() (mend func()) {
					r.ends[0][log].SetDown(t)
					return func() { r.ends[0][log].SetUp(t) }
				}
			}
			there, d := r.log(c.method), r.relay()
			r.onPath(d, 0)
			const count = 6000
			sends := r.append(r.at(0, relay), 1, count, 2000)
			there.Until(t, "messages over the first path", func(s *status.Daemon) bool { return s.Flows[0].Receives.Paths[0].Messages > 0 })
			for range 2 {
				mend := fail()
				r.onPath(d, 1)
				s := d.Until(t, "messages over the second path", func(s *status.Daemon) bool { return paths(s)[1].Messages > 0 })
				if one := paths(&s)[0]; one.State == "connected" || one.Failures == 0 || one.Left.IsZero() {
					t.Errorf("the first path: %+v", one)
				}
				mend()
				r.onPath(d, 0)
			}
			sends.Await(t, time.Minute)
			s := there.Until(t, "the messages", func(s *status.Daemon) bool { return s.Flows[0].Packets >= count })
			if p := s.Flows[0].Receives.Paths; len(p) != 2 || p[0].Messages == 0 || p[1].Messages == 0 || p[0].Messages+p[1].Messages != count {
				t.Errorf("the log's paths: %+v", p)
			}
			d.Terminate(t)
			there.Terminate(t)
			r.verify(count)
		})
	}
}

// TestClient: a client with two paths to a log does what a relay does.
func TestClient(t *testing.T) {
	r := newRig(t)
	there := r.log("send")
	const count = 6000
	c := r.append(r.at(0, log), 1, count, 1000, "-paths", r.device(1, clients)+"="+r.at(1, log))
	messages := func(path int, more uint64) func(*status.Daemon) bool {
		return func(s *status.Daemon) bool {
			p := s.Flows[0].Receives.Paths
			return len(p) == 2 && p[path].Messages >= more
		}
	}
	there.Until(t, "messages over the first path", messages(0, 100))
	mend := r.cut(0, clients)
	s := there.Until(t, "messages over the second path", messages(1, 100))
	mend()
	there.Until(t, "messages over the first path again", messages(0, s.Flows[0].Receives.Paths[0].Messages+100))
	c.Await(t, time.Minute)
	there.Terminate(t)
	r.verify(count)
}

// TestFlaps: while a path comes and goes every second, nothing is lost and nothing comes twice. The short form takes some
// seconds, and UNIFIEDD_SPAN=10m the long one.
func TestFlaps(t *testing.T) {
	r := newRig(t)
	there, d := r.log("send"), r.relay()
	r.onPath(d, 0)
	span, err := time.ParseDuration(cmp.Or(os.Getenv("UNIFIEDD_SPAN"), "6s"))
	if err != nil {
		t.Fatalf("UNIFIEDD_SPAN=%s: it must be a time, such as 10m", os.Getenv("UNIFIEDD_SPAN"))
	}
	const rate = 1000
	count := int(span/time.Second) * rate
	c := r.append(r.at(0, relay), 1, count, rate)
	for until := time.Now().Add(span); time.Now().Before(until); {
		mend := r.cut(0, log)
		time.Sleep(500 * time.Millisecond)
		mend()
		time.Sleep(500 * time.Millisecond)
	}
	c.Await(t, time.Minute)
	s := d.Until(t, "all acknowledgements", func(s *status.Daemon) bool { return s.Flows[0].Sends.Peers[0].Acknowledged >= uint64(count) })
	t.Logf("%d messages, %d sent again; paths %+v", count, s.Flows[0].Sends.Peers[0].Resent, paths(&s))
	d.Terminate(t)
	there.Terminate(t)
	r.verify(count)
}
