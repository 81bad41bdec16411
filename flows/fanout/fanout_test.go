package fanout

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestFanout: a fanout obeys the rules below, on two machines.
func TestFanout(t *testing.T) {
	near, far := newMachines(t)
	for _, c := range []struct {
		name string
		f    func(t *testing.T, near, far *machine)
	}{
		{"All", testAll},
		{"SlowPeer", testSlowPeer},
		{"Most", testMost},
		{"MostWaits", testMostWaits},
		{"Promise", testPromise},
		{"Round", testRound},
		{"Hash", testHash},
		{"TooLong", testTooLong},
		{"ComesBack", testComesBack},
		{"Allocations", testAllocations},
		{"Open", testOpen},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(t, near.with(t), far.with(t)) })
	}
}

// testAll: the fanout sends every message to every peer, acknowledges it when all peers have it,
// and shares its frames until then.
func testAll(t *testing.T, near, far *machine) {
	a, b, c := far.newSink(32, 0), far.newSink(32, 0), far.newSink(32, 0)
	c.slow(true)
	s := near.newSource(Config{Choose: All, Acknowledge: Everybody}, 256, a.address, Wait, b.address, Wait, c.address, Wait)
	s.more(200)
	a.await(200)
	b.await(200)
	s.wait("the slow peer's acknowledgements", func() bool { return s.acked == 32 })
	s.on(func() {
		if n := s.f.shared.Held(); n != 168 {
			t.Errorf("%d frames are shared, want 168", n)
		}
	})
	c.slow(false)
	c.await(200)
	for i, p := range s.idle() {
		if p.Offered != 200 || p.Sender.Acknowledged != 200 || p.Sender.Posted != 200 {
			t.Errorf("peer %d: %+v", i, p)
		}
	}
	s.on(func() {
		if s.acked != 200 || len(s.free) != 1024 || s.f.shared.Held() != 0 {
			t.Errorf("%d are acknowledged, %d frames are back, %d are shared", s.acked, len(s.free), s.f.shared.Held())
		}
	})
}

// testSlowPeer: the fanout applies each policy to a peer without credits, and the other peer gets
// every message.
func testSlowPeer(t *testing.T, near, far *machine) {
	const depth, credits, n = 64, 16, 500
	for _, policy := range []Policy{Wait, DropNewest, DropOldest, Disconnect} {
		t.Run(string(policy), func(t *testing.T) {
			near, far := near.with(t), far.with(t)
			quick, lazy := far.newSink(32, 0), far.newSink(credits, 0)
			lazy.slow(true)
			s := near.newSource(Config{Choose: All}, depth, quick.address, Wait, lazy.address, policy)
			s.wait("both to be connected", func() bool { return s.f.peers[0].sender.Connected() && s.f.peers[1].sender.Connected() })
			s.more(n)
			if policy == Wait {
				quick.await(depth + credits)
				s.on(func() {
					if s.refused == 0 || s.sent != depth+credits {
						t.Errorf("%d messages are taken, and %d offers refused", s.sent, s.refused)
					}
				})
			} else {
				quick.await(n)
			}
			lazy.slow(false)
			p := s.idle()
			quick.await(n)
			lazy.on(func() { checkSlow(t, policy, lazy.tokens, p[1]) })
		})
	}
}

func checkSlow(t *testing.T, policy Policy, tokens []uint64, p PeerStats) {
	const depth, credits, n = 64, 16, 500
	t.Logf("%s: %d messages came, %v were dropped", policy, len(tokens), p.Dropped)
	last := uint64(0)
	if len(tokens) > 0 {
		last = tokens[len(tokens)-1]
	}
	switch policy {
	case Wait:
		if len(tokens) != n {
			t.Errorf("%d messages came", len(tokens))
		}
	case DropNewest: // the first messages are kept; how many more use the credits depends on when the sender posts
		if len(tokens) < depth || tokens[depth-1] != depth || !slices.IsSorted(tokens) || p.Dropped["queue_full"] != uint64(n-len(tokens)) {
			t.Errorf("%d messages came, the last is %d", len(tokens), last)
		}
	case DropOldest: // the last messages are kept
		if len(tokens) < depth || last != n || p.Dropped["oldest"] != uint64(n-len(tokens)) || p.Dropped["queue_full"] != 0 {
			t.Errorf("%d messages came, the last is %d: %+v", len(tokens), last, p)
		}
	case Disconnect:
		if p.Dropped["disconnected"] != uint64(n-len(tokens)) || len(tokens) < credits || len(tokens) > n-depth || !strings.Contains(p.Sender.Cause, "too slow") {
			t.Errorf("%+v", p)
		}
	}
}

// testMost: with Most, the fanout does not wait for a peer that never connects.
func testMost(t *testing.T, near, far *machine) {
	a, b := far.newSink(32, 0), far.newSink(32, 0)
	s := near.newSource(Config{Choose: All, Acknowledge: Most}, 64, a.address, Wait, b.address, Wait, far.ns.IP.String()+":1", DropOldest)
	s.more(500)
	s.wait("everything to be acknowledged", func() bool { return s.acked == 500 })
	a.await(500)
	b.await(500)
	p := s.f.Stats()[2]
	if p.Dropped["oldest"] != 500-64 || p.Sender.Waiting != 64 || p.Sender.Acknowledged != 0 || p.Sender.State == stream.SenderConnected {
		t.Errorf("%+v", p)
	}
}

// testMostWaits: a disconnected peer with the policy Wait does not stall the others, and the fanout
// counts the messages that it missed.
func testMostWaits(t *testing.T, near, far *machine) {
	for _, answer := range []Acknowledge{Any, Most} {
		t.Run(string(answer), func(t *testing.T) {
			near, far := near.with(t), far.with(t)
			a, b := far.newSink(32, 0), far.newSink(32, 0)
			s := near.newSource(Config{Choose: All, Acknowledge: answer}, 64, a.address, Wait, b.address, Wait, far.ns.IP.String()+":1", Wait)
			s.wait("both to be connected", func() bool { return s.f.peers[0].sender.Connected() && s.f.peers[1].sender.Connected() })
			s.more(500)
			s.wait("everything to be acknowledged", func() bool { return s.acked == 500 })
			a.await(500)
			b.await(500)
			p := s.f.Stats()[2]
			if p.Offered != 500 || p.Dropped["disconnected"] != 500-64 || p.Sender.Waiting != 64 {
				t.Errorf("%+v", p)
			}
		})
	}
}

// testPromise: while two of three peers are disconnected, no policy drops a message that needs the
// acknowledgement of one of them.
func testPromise(t *testing.T, near, far *machine) {
	b := far.newSink(32, 0)
	_, port, _ := strings.Cut(b.address, ":")
	b.close()
	for _, policy := range []Policy{DropNewest, DropOldest, Disconnect} {
		t.Run(string(policy), func(t *testing.T) {
			near, far := near.with(t), far.with(t)
			a := far.newSink(32, 0)
			s := near.newSource(Config{Choose: All, Acknowledge: Most}, 64, a.address, Wait, far.ns.IP.String()+":"+port, policy, far.ns.IP.String()+":1", policy)
			s.more(200)
			s.wait("offers to be refused", func() bool { return s.refused > 10 })
			s.on(func() {
				if s.sent != 64 || s.acked != 0 {
					t.Errorf("%d messages are taken, %d acknowledged", s.sent, s.acked)
				}
			})
			number, _ := strconv.Atoi(port)
			b := far.newSink(32, number)
			s.wait("everything to be acknowledged", func() bool { return s.acked == 200 })
			b.await(200)
			b.close()
		})
	}
}

// testRound: the fanout sends each message to one peer, and skips disconnected peers.
func testRound(t *testing.T, near, far *machine) {
	a, b := far.newSink(32, 0), far.newSink(32, 0)
	s := near.newSource(Config{Choose: Round, Acknowledge: Any}, 64, a.address, Wait, far.ns.IP.String()+":1", Wait, b.address, Wait)
	s.wait("both to be connected", func() bool { return s.f.peers[0].sender.Connected() && s.f.peers[2].sender.Connected() })
	s.more(300)
	s.wait("everything to be acknowledged", func() bool { return s.acked == 300 })
	p := s.idle()
	if na, nb := a.came(), b.came(); na+nb != 300 || na < 50 || nb < 50 || p[1].Offered != 0 {
		t.Errorf("%d and %d messages came, and %d were offered to who is not there", na, nb, p[1].Offered)
	}
}

// testHash: the fanout sends packets of one connection to one peer, and spreads connections over
// all peers.
func testHash(t *testing.T, near, far *machine) {
	a, b := far.newSink(32, 0), far.newSink(32, 0)
	s := near.newSource(Config{Choose: Hash, Acknowledge: Any}, 64, a.address, Wait, b.address, Wait)
	s.on(func() {
		s.fill = func(m []byte, token uint64) int {
			return copy(m, packetOf(tuple{from: "10.0.0.1", to: "10.0.0.2", fromPort: uint16(1000 + token%50), toPort: 80, proto: protocolUDP}))
		}
	})
	s.more(500)
	s.wait("everything to be acknowledged", func() bool { return s.acked == 500 })
	s.idle()
	var of [2]map[uint64]bool
	for i, k := range []*sink{a, b} {
		of[i] = map[uint64]bool{}
		k.on(func() {
			for _, token := range k.tokens {
				of[i][token%50] = true
			}
		})
	}
	if len(of[0])+len(of[1]) != 50 || len(of[0]) < 10 || len(of[1]) < 10 {
		t.Errorf("one peer got %d connections and the other %d, of 50", len(of[0]), len(of[1]))
	}
}

// testTooLong: the fanout drops and counts a message that is too long for a peer; if it must be
// acknowledged, Poll returns an error.
func testTooLong(t *testing.T, near, far *machine) {
	a := far.newSink(32, 0)
	for _, acknowledge := range []Acknowledge{Nobody, Any} {
		s := near.newSource(Config{Choose: All, Acknowledge: acknowledge}, 64, a.address, DropNewest)
		s.on(func() {
			s.fill = func(m []byte, token uint64) int { return 960 + int(token%2) }
			if !s.f.Fits(1, 960) || s.f.Fits(1, 961) || s.f.Fits(4, 100) {
				t.Error("Fits is wrong")
			}
		})
		s.more(2)
		if acknowledge == Nobody {
			if p := s.idle()[0]; p.Offered != 2 || p.Dropped["too_long"] != 1 || p.Sender.Acknowledged != 1 {
				t.Errorf("%+v", p)
			}
		} else {
			testenv.Wait(t, 20*time.Second, "an error", func() (yes bool) {
				s.on(func() { yes = strings.Contains(s.wrong, "961 bytes in 1 frames is too long") })
				return yes
			})
			s.on(func() { s.round, s.wrong = nil, "" })
		}
		s.cancel()
		err := <-s.ran
		s.ran <- err
	}
}

// testComesBack: each peer gets every message once, although peers disconnect and reconnect.
func testComesBack(t *testing.T, near, far *machine) {
	a, b := far.newSink(32, 0), far.newSink(32, 0)
	s := near.newSource(Config{Choose: All, Acknowledge: Everybody}, 64, a.address, Wait, b.address, Wait)
	for i, k := range []*sink{a, b, a} {
		s.more(300)
		s.wait("some to be acknowledged", func() bool { return s.acked > uint64(300*i+50) })
		k.cancel()
		k.must(<-k.served)
		_, port, _ := strings.Cut(k.address, ":")
		number, _ := strconv.Atoi(port)
		k.serve(number)
	}
	s.wait("everything to be acknowledged", func() bool { return s.acked == 900 })
	a.await(900)
	b.await(900)
	s.idle()
}

// testAllocations: Offer, Kick, Poll, Free and Acknowledged do not allocate.
func testAllocations(t *testing.T, near, far *machine) {
	a, b := far.newSink(64, 0), far.newSink(64, 0)
	for _, k := range []*sink{a, b} {
		k.on(func() { k.tokens = make([]uint64, 0, 1<<20) })
	}
	s := near.newSource(Config{Choose: All, Acknowledge: Everybody}, 64, a.address, Wait, b.address, Wait)
	s.wait("both to be connected", func() bool { return s.f.peers[0].sender.Connected() && s.f.peers[1].sender.Connected() })
	s.on(func() { s.round = nil })
	message := make([]umem.Frame, 1)
	now := time.Now()
	round := func() {
		for range 8 {
			if len(s.free) == 0 {
				break
			}
			start, _ := s.region.Start(s.free[len(s.free)-1])
			message[0] = umem.Frame{Addr: start, Len: 300}
			binary.BigEndian.PutUint64(s.region.Bytes(message[0]), s.sent+1)
			if s.f.Offer(message, s.sent+1, s.sent+1) {
				s.sent++
				s.free = s.free[:len(s.free)-1]
			}
		}
		if s.f.Kick() != nil || s.f.Poll(now) != nil {
			t.Error("Kick or Poll fails")
		}
		s.free = append(s.free, s.frames[:s.f.Free(s.frames[:])]...)
		s.acked += uint64(s.f.Acknowledged(s.tokens[:]))
	}
	testenv.Wait(t, 30*time.Second, "messages", func() (all bool) {
		s.on(func() {
			if n := testenv.AllocsPerRun(t, 20, round); n > 0 {
				t.Errorf("a round allocates %v times", n)
			}
			all = t.Failed() || s.acked > 200
		})
		return all
	})
	s.on(func() { s.want, s.round = s.sent, s.turn })
	s.idle()
}

// testOpen: Open refuses an invalid configuration with an error that names the fault.
func testOpen(t *testing.T, near, far *machine) {
	w := near.newWorker("test")
	for want, change := range map[string]func(*Config){
		"Worker":        func(c *Config) { c.Worker = nil },
		"0 peers":       func(c *Config) { c.Peers = nil },
		"65 peers":      func(c *Config) { c.Peers = make([]Peer, 65) },
		"256 frames":    func(c *Config) { c.Frames = 256 },
		"choice of":     func(c *Config) { c.Choose = "some" },
		"policy of":     func(c *Config) { c.Peers = []Peer{{Policy: "hope"}} },
		`by "somebody"`: func(c *Config) { c.Acknowledge = "somebody" },
	} {
		c := Config{Worker: w.hands, Peers: []Peer{{Policy: Wait}}, Choose: All}
		change(&c)
		w.on(func() {
			if f, err := Open(c); f != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want one with %q", err, want)
			}
		})
	}
}
