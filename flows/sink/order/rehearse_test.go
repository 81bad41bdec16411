package order

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// received returns how many packets have come to an interface.
func received(t *testing.T, e *testenv.End) (n int) {
	t.Helper()
	e.Do(t, func() {
		text, err := os.ReadFile(filepath.Join("/proc/thread-self/net/dev"))
		testenv.Must(t, err)
		for line := range strings.Lines(string(text)) {
			if name, rest, _ := strings.Cut(strings.TrimSpace(line), ":"); name == e.Ifname {
				n, err = strconv.Atoi(strings.Fields(rest)[1])
				testenv.Must(t, err)
			}
		}
	})
	return n
}

// TestRehearsal: a worker that spins rehearses orders, and nothing of it is to be seen: neither packets nor counts. The next
// order is what it would have been.
func TestRehearsal(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{rules: hits(), spins: true, limits: config.OrderLimits{Rate: 1000, Burst: 10}})
	c := r.exchange.accept()
	hit := append([]byte("A"), make([]byte, 600)...)
	next := uint64(5)
	order := func() {
		t.Helper()
		for !r.message(hit) { // it is late
			r.round()
		}
		var b [608]byte
		if _, err := io.ReadFull(c, b[:]); err != nil || binary.BigEndian.Uint64(b[:]) != next {
			t.Fatalf("order %d: % x, %v", next, b[:8], err)
		}
		next++
	}
	order()
	r.await("rest", func() bool { return r.sink.conn.Unacknowledged() == 0 && r.sink.queued == 0 })
	before, packets, calls := r.status(), received(t, &p.B), wakeups(r)
	if a := testenv.AllocsPerRun(t, 100, func() {
		for until := time.Now().Add(100 * time.Microsecond); time.Now().Before(until); {
			r.round()
		}
	}); a >= 1 {
		t.Errorf("a rehearsal allocates %v times", a)
	}
	if n := wakeups(r) - calls; n < 50 {
		t.Errorf("the kernel was called %d times", n)
	}
	if n := received(t, &p.B) - packets; n > 10 { // the two ends may ask for each other's addresses
		t.Errorf("%d packets have come meanwhile", n)
	}
	if after := r.status(); !reflect.DeepEqual(before.Dropped, after.Dropped) || !reflect.DeepEqual(before.CopiedBytes, after.CopiedBytes) ||
		!reflect.DeepEqual(before.Orders.Rules, after.Orders.Rules) || before.Orders.Segments != after.Orders.Segments || before.Orders.Bytes != after.Orders.Bytes {
		t.Errorf("before: %+v, %+v\nafter: %+v, %+v", before, before.Orders, after, after.Orders)
	}
	for range 30 { // each some time after the one before
		for until := time.Now().Add(3 * time.Millisecond); time.Now().Before(until); {
			r.round()
		}
		order()
	}
	if n := r.status().Orders.Kernel["early"]; n > 3 { // what a rehearsal noticed would decide on the next order
		t.Errorf("%d of 30 orders went the kernel's way because of early acknowledgements", n)
	}
	t.Logf("kernel %v, early %d", r.status().Orders.Kernel, r.status().Orders.Early)
	r.env.Halt.Stop()
	held, calls := r.env.Halt.Held(), wakeups(r)
	for until := time.Now().Add(time.Millisecond); time.Now().Before(until); {
		r.round()
	}
	if n := wakeups(r) - calls; n != 0 || r.env.Halt.Held() != held {
		t.Errorf("with the kill switch on: %d calls, %d orders are held", n, r.env.Halt.Held()-held)
	}
}

// wakeups returns how often the port has called the kernel.
func wakeups(r *rig) uint64 {
	r.t.Helper()
	s, err := r.sink.port.Stats()
	testenv.Must(r.t, err)
	return s.Wakeups
}
