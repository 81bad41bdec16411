package roce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/rdma"
)

// The memory of each side has four parts: a slot for each request, to send from or to receive in;
// slots for READs to read; slots for the results of READs and atomics; and a word for atomics.
const (
	slotBytes = 32 << 10
	slots     = 32
	readFrom  = slots * slotBytes
	landAt    = 2 * slots * slotBytes
	wordAt    = 3 * slots * slotBytes
	mostOpen  = 8
)

// TestBadNetwork: random requests over real sockets and a bad network are executed once and in
// order, or a prefix is and the next one fails with the right status. The network loses,
// duplicates, delays, corrupts and truncates packets and adds false ACKs. The test compares both
// memories with a simple reference. It runs for UNIFIEDD_SECONDS, with a new queue pair for each
// seed, from UNIFIEDD_SEED on.
func TestBadNetwork(t *testing.T) {
	testenv.Leaks(t)
	first := setting.Seed(t)
	g, r := newBadRig(t, first, rigOptions{mtu: 4200})
	end := time.Now().Add(time.Duration(setting.Number(t, "UNIFIEDD_SECONDS", 0)) * time.Second)
	var all bad
	for seed := first; (seed == first || time.Now().Before(end)) && !t.Failed(); seed++ {
		all.round(g, r, seed)
		if t.Failed() {
			t.Logf("seed %d\n%s\n%s", seed, g.sides[0].dev.show(), g.sides[1].dev.show())
		}
	}
	text := fmt.Sprintf("%d seeds, %d requests of %d bytes, %d packets;", all.rounds, all.requests, all.bytes, r.carried.Load())
	for kind := range kinds {
		text += fmt.Sprintf(" %s %d,", faultNames[kind], r.did[kind].Load())
	}
	t.Logf("%s requests ended: %v", text, all.statuses)
	if all.statuses[rdma.Success] == 0 || r.carried.Load() == 0 {
		t.Error("nothing was done")
	}
}

// bad counts the requests over a bad network and their outcome.
type bad struct {
	rounds, requests, bytes uint64
	statuses                map[rdma.Status]int
}

// job is a request of a given length.
type job struct {
	op     rdma.Op
	length int
}

// round connects two queue pairs, runs the requests of a seed, and checks the outcome.
func (b *bad) round(g *rig, r *relay, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	r.setRates(rnd)
	g.timeout = 12
	from, to := g.connected(config(rdma.RC), []rdma.MTU{rdma.MTU256, rdma.MTU1024, rdma.MTU4096}[rnd.IntN(3)])
	defer from.close()
	defer to.close()
	jobs := make([]job, slots)
	for i := range jobs {
		jobs[i] = job{[]rdma.Op{rdma.Send, rdma.Write, rdma.Read, rdma.FetchAdd}[rnd.IntN(4)], 1 + rnd.IntN([]int{64, 5000, slotBytes}[rnd.IntN(3)])}
		if jobs[i].op == rdma.FetchAdd {
			jobs[i].length = 8
		}
	}
	from.fill(0, extentBytes, byte(seed))
	to.fill(0, extentBytes, byte(seed)+128)
	ours, theirs := bytes.Clone(from.at(0, extentBytes)), bytes.Clone(to.at(0, extentBytes))
	for i, j := range jobs {
		if j.op == rdma.Send {
			to.receive(uint64(i), to.sge(uint64(i)*slotBytes, slotBytes))
		}
	}
	good := b.work(from, to, jobs)
	g.must(to.qp.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState)) // drops later packets
	came := to.arrived(jobs)
	b.rounds++
	check(from, to, jobs, ours, theirs, good, came)
}

// work posts the requests, some at a time, and returns how many succeeded before the first failure.
func (b *bad) work(from, to *end, jobs []job) (good int) {
	posted := 0
	for done := range jobs {
		for ; posted < len(jobs) && posted < done+mostOpen; posted++ {
			from.start(to, posted, jobs[posted])
		}
		c := from.completion()
		if b.statuses == nil {
			b.statuses = map[rdma.Status]int{}
		}
		b.statuses[c.Status]++
		switch {
		case c.ID != uint64(done):
			from.Errorf("request %d was completed behind %d", c.ID, done)
		case c.Status == rdma.Success && good == done:
			good++
		case good == done && c.Status != rdma.RetryExceeded, good != done && c.Status != rdma.WorkFlushed:
			from.Errorf("request %d ended with %v, %d succeeded", done, c.Status, good)
		}
		b.requests, b.bytes = b.requests+1, b.bytes+uint64(jobs[done].length)
	}
	return good
}

func (e *end) start(to *end, i int, j job) {
	at := uint64(i) * slotBytes
	r := rdma.SendRequest{ID: uint64(i), Op: j.op, RKey: to.memory.RKey(), RemoteAddr: to.base + at}
	switch j.op {
	case rdma.Read:
		r.RemoteAddr, at = to.base+readFrom+at, landAt+at
	case rdma.FetchAdd:
		r.RemoteAddr, r.Compare, at = to.base+wordAt, 1, landAt+at
	}
	e.send(r, e.sge(at, j.length))
}

// arrived takes the messages that arrived, checks that they are the SENDs in order, and returns
// their number.
func (e *end) arrived(jobs []job) (came int) {
	g, at := e.rig, 0
	var got [64]rdma.WorkCompletion
	n, err := e.cq.Poll(got[:])
	g.must(err)
	for _, c := range got[:n] {
		if c.Status == rdma.WorkFlushed {
			break
		}
		for at < len(jobs) && jobs[at].op != rdma.Send {
			at++
		}
		if at == len(jobs) || c.Status != rdma.Success || c.ID != uint64(at) || int(c.Length) != jobs[at].length {
			g.Errorf("message %d of %d bytes with %v, want the SEND of request %d", c.ID, c.Length, c.Status, at)
			return came
		}
		at++
		came++
	}
	return came
}

// check compares both memories with the expected result: requests that succeeded have taken effect,
// and later ones may have.
func check(from, to *end, jobs []job, ours, theirs []byte, good, came int) {
	word := binary.NativeEndian.Uint64(theirs[wordAt:])
	fewest, sends := word, 0
	for i, j := range jobs {
		at := i * slotBytes
		switch done := i < good; {
		case j.op == rdma.FetchAdd:
			land(from, ours, landAt+at, binary.NativeEndian.AppendUint64(nil, word), done)
			if word++; done {
				fewest = word
			}
		case j.op == rdma.Read:
			land(from, ours, landAt+at, theirs[readFrom+at:][:j.length], done)
		case j.op == rdma.Send:
			if sends++; done && came < sends {
				from.Errorf("request %d succeeded, and did not come", i)
			}
			land(to, theirs, at, ours[at:][:j.length], done || sends <= came)
		default:
			land(to, theirs, at, ours[at:][:j.length], done)
		}
	}
	if now := binary.NativeEndian.Uint64(to.at(wordAt, 8)); now < fewest || now > word {
		from.Errorf("the word was added to %d times too often, or too seldom: %d to %d are right", int64(now-word), fewest, word)
	}
	copy(theirs[wordAt:], to.at(wordAt, 8))
	for _, m := range []struct {
		of   *end
		want []byte
	}{{from, ours}, {to, theirs}} {
		if now := m.of.at(0, extentBytes); !bytes.Equal(now, m.want) {
			i := 0
			for now[i] == m.want[i] {
				i++
			}
			from.Errorf("%s: byte %#x is %#x, want %#x", m.of.dev.Name(), i, now[i], m.want[i])
		}
	}
}

// land adds the data of a request to the expected memory. If the request did not succeed, it adds
// only the bytes that have arrived.
func land(e *end, want []byte, at int, data []byte, done bool) {
	now := e.at(uint64(at), len(data))
	for i := range data {
		if done || now[i] == data[i] {
			want[at+i] = data[i]
		}
	}
}
