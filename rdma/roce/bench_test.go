package roce

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// BenchmarkPingPong measures half a round trip between two namespaces, while both ends spin.
func BenchmarkPingPong(b *testing.B) {
	for _, c := range []struct {
		name string
		op   rdma.Op
		size int
		Config
	}{{"SEND-64", rdma.Send, 64, Config{}}, {"WRITE-64", rdma.WriteImmediate, 64, Config{}}, {"SEND-4096-gathered", rdma.Send, 4096, Config{}},
		{"SEND-4096-copied", rdma.Send, 4096, Config{CopyBelow: 1 << 20}}} {
		b.Run(c.name, func(b *testing.B) {
			g := newRig(b, rigOptions{mtu: 4200, config: c.Config})
			x, y := g.connected(config(rdma.RC), rdma.MTU4096)
			p := pingPong{x: player{end: x, to: y, op: c.op, size: c.size}, y: player{end: y, to: x, op: c.op, size: c.size}}
			p.run(b)
		})
	}
}

// pingPong is two ends that send messages to each other by turns.
type pingPong struct{ x, y player }

type player struct {
	*end
	to       *end
	op       rdma.Op
	size     int
	requests [1]rdma.SendRequest
	receives [1]rdma.ReceiveRequest
	sges     [2]rdma.SGE
	got      [16]rdma.WorkCompletion
	at, n    int
	pending  int // messages sent and not completed
}

func (p *player) prepare() {
	p.requests[0] = rdma.SendRequest{Op: p.op, SGEs: 1, RemoteAddr: p.to.base + 1<<20, RKey: p.to.memory.RKey()}
	p.receives[0] = rdma.ReceiveRequest{SGEs: 1}
	p.sges = [2]rdma.SGE{p.sge(0, p.size), p.sge(1<<20, p.size)}
	for range 8 {
		p.await()
	}
}

// await posts a receive.
func (p *player) await() {
	if n, err := p.qp.PostReceive(p.receives[:], p.sges[1:]); n != 1 {
		p.Error(err)
	}
}

// serve sends a message.
func (p *player) serve() {
	if n, err := p.qp.PostSend(p.requests[:], p.sges[:1]); n != 1 {
		p.Error(err)
	}
	p.pending++
}

// hit waits for a message.
func (p *player) hit() bool {
	for {
		for ; p.at < p.n; p.at++ {
			c := &p.got[p.at]
			if c.Status != rdma.Success {
				p.Errorf("%s: %v: %v\n%s", p.dev.title, c.Kind, c.Status, p.dev.show())
				return false
			}
			if c.Kind == rdma.Received || c.Kind == rdma.ReceivedWrite {
				p.at++
				p.await()
				return true
			}
			p.pending--
		}
		n, err := p.cq.Spin(p.got[:], 10*time.Second)
		if p.at, p.n = 0, n; n == 0 || err != nil {
			p.Errorf("%d, %v", n, err)
			return false
		}
	}
}

func (p *pingPong) run(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	p.x.prepare()
	p.y.prepare()
	done := make(chan struct{})
	rounds := max(b.N, 100)
	go func() {
		defer close(done)
		defer pin(b, 1)()
		for range rounds {
			if !p.y.hit() {
				return
			}
			p.y.serve()
		}
	}()
	times := make([]time.Duration, 0, rounds)
	defer pin(b, 0)()
	b.ResetTimer()
	for range rounds {
		begin := time.Now()
		p.x.serve()
		if !p.x.hit() {
			break
		}
		times = append(times, time.Since(begin))
	}
	<-done
	b.StopTimer()
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/2, "ns/half")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/2, "ns/half-p99")
	if s, err := p.x.dev.datapath.port.Stats(); err == nil {
		b.ReportMetric(float64(s.Wakeups)/float64(rounds), "calls/op")
	}
	for p.x.pending -= p.x.n - p.x.at; p.x.pending > 0 && !b.Failed(); {
		p.x.completion()
		p.x.pending--
	}
}

// pin keeps the goroutine on a CPU until the function it returns is called.
func pin(b *testing.B, cpu int) func() {
	runtime.LockOSThread()
	var before, one unix.CPUSet
	one.Set(cpu)
	testenv.Check(b, errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &one)))
	return func() {
		_ = unix.SchedSetaffinity(0, &before)
		runtime.UnlockOSThread()
	}
}

// BenchmarkBandwidth measures WRITEs from one end to the other, which only polls from time to time.
func BenchmarkBandwidth(b *testing.B) {
	for _, c := range []struct {
		name string
		op   rdma.Op
		size int
	}{{"WRITE-64K", rdma.Write, 65536}, {"WRITE-4K", rdma.Write, 4096}, {"READ-64K", rdma.Read, 65536}} {
		b.Run(c.name, func(b *testing.B) {
			g := newRig(b, rigOptions{mtu: 4200, config: Config{Receive: 2048, Send: 512}})
			x, y := g.connected(config(rdma.RC), rdma.MTU4096)
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				defer pin(b, 1)()
				for {
					select {
					case <-stop:
						return
					default:
						for range 1000 {
							y.dev.Progress()
						}
					}
				}
			}()
			defer pin(b, 0)()
			b.SetBytes(int64(c.size))
			b.ResetTimer()
			x.stream(y, c.op, c.size, b.N)
			b.StopTimer()
			close(stop)
			<-done
			b.Log(x.dev.show())
			b.Log(y.dev.show())
		})
	}
}

// stream makes n requests, with many outstanding at a time.
func (e *end) stream(to *end, op rdma.Op, size, n int) {
	const most = 16
	requests := []rdma.SendRequest{{Op: op, SGEs: 1, RemoteAddr: to.base + 1<<20, RKey: to.memory.RKey()}}
	sges := []rdma.SGE{e.sge(0, size)}
	var got [most]rdma.WorkCompletion
	for posted, done := 0, 0; done < n; {
		for ; posted < n && posted-done < most; posted++ {
			if k, err := e.qp.PostSend(requests, sges); k != 1 {
				e.Fatal(err)
			}
		}
		k, err := e.cq.Spin(got[:], time.Second)
		if k == 0 || err != nil || got[0].Status != rdma.Success {
			e.Fatalf("%d, %v, %v\n%s\n%s", k, err, got[0].Status, e.dev.show(), to.dev.show())
		}
		done += k
	}
}
