package flows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// logConfig returns the configuration of a daemon with a log at end B.
func (l *lab) logConfig(to string, from string) string {
	return fmt.Sprintf(`
region: {size: 96MiB, extent: 1MiB, extents: 12}
flows:
  - name: wal
    from: {rdma: "roce:%s", listen: "%s:7471", window: 16, clients: 4%s}
    to: {file: "%s/wal", segment: {size: 32MiB}, prepare: zero, %s}
`, l.B.Ifname, l.B.IP, from, l.dir, to)
}

func (l *lab) address() string { return fmt.Sprintf("%s:7471", l.B.IP) }

// entry is a record as a log has it.
type entry struct {
	protocol.Data
	payload []byte
}

// entries reads the log and checks its records: they have correct checksums, and positions without a gap.
func (l *lab) entries(t *testing.T) (all []entry) {
	t.Helper()
	for i, p := range captures.Packets(t, l.files(t)...) {
		d, reason := protocol.ParseRecord(p)
		if reason != protocol.None || protocol.Checksum(p[protocol.HeaderLen:]) != d.Checksum {
			t.Fatalf("record %d: %v", i, reason)
		}
		if d.Position != uint64(i+1) {
			t.Fatalf("record %d has position %d", i, d.Position)
		}
		all = append(all, entry{d, p[protocol.HeaderLen:]})
	}
	return all
}

// logged checks that a log has the clients' records, each once, and those of a client in order.
func (l *lab) logged(t *testing.T, clients ...*client) {
	t.Helper()
	next, total := map[uint64]uint64{}, uint64(0)
	byNumber := map[uint64]*client{}
	for _, c := range clients {
		byNumber[c.number], total = c, total+c.want
	}
	all := l.entries(t)
	for i, e := range all {
		number := binary.BigEndian.Uint64(e.payload)
		c := byNumber[number]
		if c == nil {
			t.Fatalf("record %d is of client %d", i, number)
		}
		if want := record(number, next[number], c.size(next[number])); !bytes.Equal(e.payload, want) {
			t.Fatalf("record %d is not record %d of client %d", i, next[number], number)
		}
		next[number]++
	}
	if uint64(len(all)) != total {
		t.Errorf("the log has %d records of %d", len(all), total)
	}
}

// TestLogGoesOn: a log that stops and starts again continues with its positions, and clients continue with
// their records. The log has a client's session in memory or reads it from the disk.
func TestLogGoesOn(t *testing.T) {
	l := newRDMALab(t)
	text := l.logConfig("layout: slot, acknowledge: durable", "")
	d := l.start(t, text, Options{})
	s := l.newStation(t)
	a := s.newClient(t, 1, l.address(), "wal", 16, 700)
	a.send(300)
	a.settle(t)
	for i := range 2 {
		a.send(300) // some are in flight when the log stops
		testenv.Must(t, d.Flows()[0].Stop())
		l.begin(t, d.Flows()[0].Start)
		a.settle(t)
		if i == 0 {
			continue
		}
		b := s.newClient(t, 2, l.address(), "wal", 100)
		b.send(100)
		b.settle(t)
		st := d.Flows()[0].Status()
		if st.Log.First < 301 || st.Log.Acknowledged != 1000 {
			t.Errorf("the log's status is %+v", st.Log)
		}
		pairsOpen(t, d, 2)
		b.stop()
		pairsOpen(t, d, 1)
		testenv.Must(t, d.Flows()[0].Stop())
		l.logged(t, a, b)
	}
	report, err := journal.Verify(l.dir + "/wal")
	if err != nil || !report.Intact() {
		t.Errorf("verified: %+v, %v", report, err)
	}
}

// pairsOpen waits until the daemon's one RDMA device has n queue pairs.
func pairsOpen(t *testing.T, d *Daemon, n int) {
	t.Helper()
	testenv.Wait(t, 10*time.Second, fmt.Sprintf("%d queue pairs to be open", n), func() bool {
		all := d.Status().RDMA
		return len(all) == 1 && all[0].QueuePairs == n
	})
}

// TestLogWritten: clients write records into memory that they are granted, and the disk writes them from
// there. When one client leaves, the flow takes back its memory and the other client continues. The worker
// sleeps until there is something to do.
func TestLogWritten(t *testing.T) {
	l := newRDMALab(t)
	f := l.start(t, l.logConfig("layout: slot, acknowledge: durable", ", method: write")+"workers: [{name: w}]\n", Options{}).Flows()[0]
	s := l.newStation(t)
	a, b := s.newClient(t, 1, l.address(), "wal", 16, 1900), s.newClient(t, 2, l.address(), "", 100)
	a.send(1000)
	b.send(1000)
	a.settle(t)
	b.settle(t)
	st := await(t, f, "memory to be granted", func(s status.Flow) bool { return s.Receives.Granted == 32 })
	if r := st.Receives; r.Method != "write" || r.Grants != 2032 || r.Clients[0].Granted != 16 || st.CopiedBytes["placed"] != st.Bytes || a.Stats().Method != stream.ByWrite {
		t.Errorf("%+v, %+v", r, st.CopiedBytes)
	}
	for why, n := range st.CopiedBytes {
		if why != "placed" && n > 0 {
			t.Errorf("%d bytes are copied for %s", n, why)
		}
	}
	b.stop()
	await(t, f, "the client to be gone", func(s status.Flow) bool { return s.Receives.Granted == 16 })
	a.send(100)
	a.settle(t)
	testenv.Must(t, f.Stop())
	if st := f.Status(); st.Receives != nil && st.Receives.Granted != 0 {
		t.Errorf("in the end %d frames are granted", st.Receives.Granted)
	}
	l.logged(t, a, b)
}

// TestLogRot: a log that was stopped in good order does not take damage at its end for a crash. It counts the
// lost records and continues behind them, on a device as in files, and at each later start.
func TestLogRot(t *testing.T) {
	for _, onDevice := range []bool{false, true} {
		l := newRDMALab(t)
		text, path := l.logConfig("layout: packed, acknowledge: durable", ""), l.dir+"/wal"
		if onDevice {
			path = testenv.Zram(t, 64<<20)
			text = strings.NewReplacer("file: \""+l.dir+"/wal\"", "device: "+path, "size: 32MiB", "size: 8MiB", "prepare: zero, ", "").Replace(text)
		}
		f := l.start(t, text, Options{}).Flows()[0]
		s := l.newStation(t)
		a := s.newClient(t, 1, l.address(), "wal", 700)
		a.send(100)
		a.settle(t)
		testenv.Must(t, f.Stop())
		damage(t, path, 100)
		for i := range uint64(2) {
			l.begin(t, f.Start)
			if st := f.Status(); st.Log.First != 101 || st.Log.Lost == 0 || st.Log.Lost > 100 {
				t.Errorf("start %d: the log's status is %+v", i, st.Log)
			}
			testenv.Must(t, f.Stop())
		}
		l.begin(t, f.Start)
		b := s.newClient(t, 2, l.address(), "wal", 100)
		b.send(10)
		b.settle(t)
		testenv.Must(t, f.Stop())
		if r, err := journal.Verify(path); err != nil || r.Intact() || r.Next != 111 || r.Lost+r.Records != 110 {
			t.Errorf("verified: %+v, %v", r, err)
		}
	}
}

// damage changes a byte of the mark in front of a record of a log.
func damage(t *testing.T, path string, position uint64) {
	t.Helper()
	rec := recordAt(t, path, position)
	name := rec.Segment
	if !strings.HasPrefix(name, path+"-") { // a ring
		name = path
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	testenv.Must(t, err)
	defer f.Close()
	raw := make([]byte, 32<<20)
	n, _ := f.ReadAt(raw, 0)
	at := bytes.LastIndex(raw[:n], rec.Payload)
	if at = bytes.LastIndex(raw[:max(at, 0)], []byte("UFDM")); at < 0 {
		t.Fatalf("no mark is in front of position %d", position)
	}
	raw[at+8] ^= 1
	if _, err := f.WriteAt(raw[at+8:][:1], int64(at+8)); err != nil {
		t.Fatal(err)
	}
	testenv.Must(t, f.Sync())
}

// recordAt reads a record.
func recordAt(t *testing.T, path string, position uint64) journal.Record {
	t.Helper()
	l, err := journal.Open(path)
	testenv.Must(t, err)
	defer l.Close()
	r := l.Reader(position)
	defer r.Close()
	rec, err := r.Next()
	if err != nil || rec.Position != position {
		t.Fatalf("position %d: %+v, %v", position, rec, err)
	}
	rec.Payload = bytes.Clone(rec.Payload)
	return rec
}

// TestLogOfLongMessages: messages that are longer than a frame land in extents.
func TestLogOfLongMessages(t *testing.T) {
	testenv.Long(t, "it moves long messages in each layout, and nothing else happens than in TestLog but where they land")
	for _, layout := range shortly() {
		t.Run(layout, func(t *testing.T) {
			l := newRDMALab(t)
			text := strings.Replace(l.logConfig("layout: "+layout, ", message: 250KiB"), "extent: 1MiB, extents: 12", "extent: 512KiB, extents: 40", 1)
			text = strings.Replace(text, "window: 16, clients: 4", "window: 4, clients: 2", 1)
			f := l.start(t, text, Options{}).Flows()[0]
			c := l.newStation(t).newClient(t, 1, l.address(), "wal", 250<<10, 16, 100_000)
			c.send(40)
			c.settle(t)
			testenv.Must(t, f.Stop())
			l.logged(t, c)
		})
	}
}

// TestLog: a log has every acknowledged message, those of a client in order.
func TestLog(t *testing.T) {
	for _, c := range []struct{ name, wait, to string }{
		{"durable", "sleep", "layout: slot, acknowledge: durable"},
		{"packed", "sleep", "layout: packed, acknowledge: durable"},
		{"written", "sleep", "layout: slot, acknowledge: written, durable: written"},
		{"received", "spin", "layout: packed, acknowledge: received"},
	}[:map[bool]int{true: 2, false: 4}[testing.Short()]] {
		t.Run(c.name, func(t *testing.T) {
			l := newRDMALab(t)
			f := l.start(t, "workers: [{name: main, wait: "+c.wait+"}]"+l.logConfig(c.to, ""), Options{}).Flows()[0]
			s := l.newStation(t)
			a, b := s.newClient(t, 1, l.address(), "wal", 16, 100, 2048, 700), s.newClient(t, 2, l.address(), "", 512)
			for _, c := range []*client{a, b} {
				c.send(600)
			}
			a.settle(t)
			b.settle(t)
			st := f.Status()
			if st.State != status.Running || st.Packets != 1200 || st.Log.Acknowledged != 1200 || len(st.Receives.Clients) != 2 {
				t.Errorf("the status is %+v, of the log %+v, of clients %+v", st, st.Log, st.Receives)
			}
			testenv.Must(t, f.Stop())
			l.logged(t, a, b)
			for i, p := range a.positions {
				if p == 0 || i > 0 && p < a.positions[i-1] {
					t.Fatalf("acknowledgement %d is of position %d, after %d", i, p, a.positions[max(0, i-1)])
				}
			}
		})
	}
}
