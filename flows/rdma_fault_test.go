package flows

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// becomes waits until a flow is in a state and its error contains all texts.
func becomes(t *testing.T, f *Flow, state status.State, texts ...string) status.Flow {
	t.Helper()
	return await(t, f, string(state), func(s status.Flow) bool {
		for _, text := range texts {
			if !strings.Contains(s.Error, text) {
				return false
			}
		}
		return s.State == state
	})
}

// TestLogFullDisk: while the disk of a log is full, its clients wait and other clients can connect. When
// there is space again, no message is missing.
func TestLogFullDisk(t *testing.T) {
	testenv.Long(t, "it fills a disk in each layout, and TestDiskFull does that to the same end of a flow")
	for _, layout := range shortly() {
		t.Run(layout, func(t *testing.T) {
			l := newRDMALab(t)
			l.dir = testenv.Ext4(t, 32<<20)
			text := strings.Replace(l.logConfig("layout: "+layout, ""), "prepare: zero", "prepare: none", 1)
			f := l.start(t, text, Options{}).Flows()[0]
			s := l.newStation(t)
			a := s.newClient(t, 1, l.address(), "wal", 2000)
			a.send(100)
			a.settle(t)
			ballast := fill(t, l.dir)
			a.send(4000)
			st := becomes(t, f, status.Waiting, "no space left", "make room", "clients wait")
			if st.Log.Acknowledged > st.Log.Durable || st.Receives.Posted < 4 {
				t.Errorf("the status is %+v, of the log %+v, of clients %+v", st, st.Log, st.Receives)
			}
			b := s.newClient(t, 2, l.address(), "wal", 100)
			b.send(1)
			await(t, f, "another client", func(s status.Flow) bool { return s.Receives.Connected == 2 })
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			becomes(t, f, status.Running)
			a.settle(t)
			b.settle(t)
			if err := f.Stop(); err != nil {
				t.Fatal(err)
			}
			l.logged(t, a, b)
		})
	}
}

// TestLogDiskError: a log on a device that fails ends, and its clients keep the messages that were not
// acknowledged. When the log starts again, they send them.
func TestLogDiskError(t *testing.T) {
	testenv.Long(t, "it fails a disk, and TestDiskError does that to the same end of a flow")
	l := newRDMALab(t)
	dev := testenv.Zram(t, 64<<20)
	text := fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: wal
    from: {rdma: "roce:%s", listen: "%s:7471", window: 16, clients: 4}
    to: {device: %s, segment: {size: 8MiB}}
`, l.B.Ifname, l.B.IP, dev)
	f := l.start(t, text, Options{}).Flows()[0]
	c := l.newStation(t).newClient(t, 1, l.address(), "wal", 700)
	c.send(100)
	c.settle(t)
	limit := "/sys/block/" + filepath.Base(dev) + "/mem_limit"
	if err := os.WriteFile(limit, []byte("4096"), 0); err != nil {
		t.Fatal(err)
	}
	c.send(1000)
	st := becomes(t, f, status.Failed, "write to "+dev, "input/output error")
	if st.Log.Acknowledged > st.Log.Durable || st.Log.Acknowledged < 100 {
		t.Errorf("the log's status is %+v", st.Log)
	}
	testenv.Wait(t, 10*time.Second, "all frames back", func() bool { return l.daemon.Region().Snapshot().Of(umem.OwnerPool) == l.daemon.Region().Frames() })
	if err := os.WriteFile(limit, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	l.begin(t, f.Start)
	c.settle(t)
	if err := f.Stop(); err != nil {
		t.Fatal(err)
	}
	report, err := journal.Verify(dev)
	if err != nil || !report.Intact() || report.Records != 1100 || report.First != 1 {
		t.Errorf("the log has %d records from %d on, %d lost: %v", report.Records, report.First, report.Lost, err)
	}
}
