package flows

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestLostWhileFull: a flow that is stopped while its disk is full loses the packets that it has received and
// those that are still in its rings. Both are counted.
func TestLostWhileFull(t *testing.T) {
	small := testenv.Ext4(t, 24<<20)
	c := newClinic(t, "", "file: "+small+"/ill, flush: 20ms, durable: 50ms, segment: {size: 64MiB}, prepare: none")
	c.ill.drainTimeout = 500 * time.Millisecond
	c.start(t)
	c.capture(t, 1000)
	fill(t, small)
	for i := 0; i < 40 && c.ill.Status().Stalls == 0; i++ {
		c.send(t, 500)
	}
	c.send(t, 500)
	if s := c.ill.Status(); s.Waiting == 0 {
		t.Fatalf("nothing waits in the rings: the test shows nothing (%+v)", s)
	}
	if err := c.ill.Stop(); err == nil {
		t.Fatal("it stopped as if all were written")
	}
	settled(t, c.ill.Status())
}

// TestLostToAnError: a flow whose disk fails counts the packets that it loses, and counts none while it may
// still write them.
func TestLostToAnError(t *testing.T) {
	dev := testenv.Zram(t, 64<<20)
	c := newClinic(t, "", "device: "+dev+", segment: {size: 8MiB}, flush: 20ms, durable: 50ms")
	c.start(t)
	c.capture(t, 100)
	testenv.Must(t, os.WriteFile("/sys/block/"+filepath.Base(dev)+"/mem_limit", []byte("4096"), 0))
	c.send(t, 300)
	testenv.Wait(t, 10*time.Second, "the flow to fail", func() bool {
		s := c.ill.Status()
		if n := s.Dropped["write_failed"]; s.State == status.Running && n > 0 {
			t.Errorf("%d packets are lost that may yet be written: a counter that goes back", n)
		}
		return s.State == status.Failed
	})
	s := await(t, c.ill, "the end", func(status.Flow) bool { return c.ill.running() == nil })
	if s = c.ill.Status(); s.Offered == s.Written.Packets { // received or not
		t.Fatalf("nothing was lost: the test shows nothing (%+v)", s)
	}
	settled(t, s)
}

// settled checks the account of a flow that has ended: each packet offered was passed on, was written, or is
// counted as lost.
func settled(t *testing.T, s status.Flow) {
	t.Helper()
	sum := s.Written.Packets + s.Waiting
	for _, by := range []map[string]uint64{s.Passed, s.Dropped} {
		for _, n := range by {
			sum += n
		}
	}
	if s.Waiting != 0 || s.Offered != sum {
		t.Errorf("of %d packets offered %d are accounted for: %d written, %d waiting, passed on %v, lost %v",
			s.Offered, sum, s.Written.Packets, s.Waiting, s.Passed, s.Dropped)
	}
}
