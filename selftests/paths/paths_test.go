package paths

import (
	"cmp"
	"os"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestRelay: a relay whose path to a log fails under traffic goes on over another one, and comes back when it is well.
// The log has each message once.
func TestRelay(t *testing.T) {
	for _, c := range []struct{ name, method string }{{"send", "send"}, {"write", "write"}, {"link", "send"}} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "send" {
				testenv.Long(t, "the case send has the same changes of paths")
			}
			r := newRig(t)
			if c.name == "link" {
				r.cut = func(path, host int) (mend func()) {
					r.ends[path][host].SetDown(t)
					return func() { r.ends[path][host].SetUp(t) }
				}
			}
			testRelay(t, r.rig, c.method)
		})
	}
}

func testRelay(t *testing.T, r *rig, method string) {
	there, d := r.log(method), r.relay("standby")
	r.onPath(d, 0)
	const count = 6000
	sends := r.append(r.at(0, relay), 1, count, 2000)
	there.Until(t, "messages over the first path", func(s *status.Daemon) bool { return s.Flows[0].Receives.Paths[0].Messages > 0 })
	for range 2 {
		mend := r.cut(0, log)
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
}

// TestClient: a client with two paths to a log does what a relay does.
func TestClient(t *testing.T) { testClient(t, newRig(t).rig) }

func testClient(t *testing.T, r *rig) {
	there := r.log("send")
	const count = 6000
	c := r.append(r.at(0, log), 1, count, testenv.Fewer(1000), "-paths", r.device(1, clients)+"="+r.at(1, log))
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

// TestActive: a relay with active paths uses both at the same time, and the one that works while the other fails. The log
// has each message once, and those of each session in order.
func TestActive(t *testing.T) { testActive(t, newRig(t).rig) }

func testActive(t *testing.T, r *rig) {
	there, d := r.log("send"), r.relay("active")
	r.onBoth(d)
	const count = 8000
	sends := r.append(r.at(0, relay), 1, count, 2000)
	both := func(s *status.Daemon) bool {
		p := s.Flows[0].Receives.Paths
		return len(p) == 2 && p[0].Messages > 0 && p[1].Messages > 0
	}
	there.Until(t, "messages over both paths", both)
	for failing := range 2 {
		mend := r.cut(failing, log)
		d.Until(t, "messages over the other path alone", func(s *status.Daemon) bool {
			return paths(s)[failing].State == "failed" && paths(s)[1-failing].State == "connected" && s.Flows[0].Sends.Peers[0].State == "connected"
		})
		mend()
		r.onBoth(d)
	}
	sends.Await(t, time.Minute)
	s := there.Until(t, "the messages", func(s *status.Daemon) bool { return s.Flows[0].Packets >= count })
	if p := s.Flows[0].Receives.Paths; p[0].Messages+p[1].Messages != count {
		t.Errorf("the log's paths: %+v", p)
	}
	s = d.Until(t, "all acknowledgements", func(s *status.Daemon) bool { return s.Flows[0].Sends.Peers[0].Acknowledged >= count })
	if p := &s.Flows[0].Sends.Peers[0]; p.PathMode != "active" || p.PathReason != "" {
		t.Errorf("the relay's peer: %+v", p)
	}
	d.Terminate(t)
	there.Terminate(t)
	r.verify(count)
}

// TestActiveWrites: a relay with active paths uses one at a time with a log that takes messages by WRITE, and says so.
func TestActiveWrites(t *testing.T) {
	testenv.Long(t, "TestActive has the method send")
	r := newRig(t)
	there, d := r.log("write"), r.relay("active")
	r.onPath(d, 0)
	const count = 1000
	r.append(r.at(0, relay), 1, count, 2000).Await(t, time.Minute)
	s := d.Until(t, "all acknowledgements", func(s *status.Daemon) bool { return s.Flows[0].Sends.Peers[0].Acknowledged >= count })
	if p := &s.Flows[0].Sends.Peers[0]; p.PathReason == "" || p.Paths[1].State != "standby" || p.Paths[1].Messages != 0 {
		t.Errorf("the relay's peer: %+v", p)
	}
	d.Terminate(t)
	there.Terminate(t)
	r.verify(count)
}

// TestFlaps: while a path comes and goes every second, nothing is lost and nothing comes twice, for UNIFIEDD_SPAN (6s). With
// active paths they come and go in turn.
func TestFlaps(t *testing.T) {
	testenv.Long(t, "it takes time, and TestRelay cuts paths")
	t.Run("standby", func(t *testing.T) { testFlaps(t, "standby", 1) })
	t.Run("active", func(t *testing.T) { testFlaps(t, "active", 2) })
}

func testFlaps(t *testing.T, mode string, failing int) {
	r := newRig(t)
	there, d := r.log("send"), r.relay(mode)
	if r.onPath(d, 0); failing > 1 {
		r.onBoth(d)
	}
	span, err := time.ParseDuration(cmp.Or(os.Getenv("UNIFIEDD_SPAN"), "6s"))
	if err != nil {
		t.Fatalf("UNIFIEDD_SPAN=%s: it must be a time, such as 10m", os.Getenv("UNIFIEDD_SPAN"))
	}
	const rate = 1000
	count := int(span/time.Second) * rate
	c := r.append(r.at(0, relay), 1, count, rate)
	for i, until := 0, time.Now().Add(span); time.Now().Before(until); i++ {
		mend := r.cut(i%failing, log)
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
