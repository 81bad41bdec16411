package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/umem"
)

const (
	// followers read the log at a time. Some begin anew with each run, as the links of a group do.
	followers = 4
	// stalled is how long a reader may stay before a record that is written.
	stalled = 4 * time.Second
	// beside is how many other files the directory has, so that it is read in several parts.
	beside = 150
)

// followed is a log in small segments, which a member of a group writes and readers follow. The log ends and begins
// again, sometimes without its last records.
type followed struct {
	*testing.T
	random *rand.Rand
	region *umem.Region
	path   string
	stop   atomic.Bool
	phase  atomic.Uint64 // of runs: odd while one begins, and even while it goes on
	read   atomic.Uint64 // records

	mu      sync.RWMutex
	runs    []uint64 // by position - 1: the run that wrote the record that is valid
	written uint64   // position of the last record that readers must get
}

// TestFollowed: readers that poll a log from any position on get each record soon after it is written, and no other
// ones, while the flow begins segments and is begun again. UNIFIEDD_SECONDS says how long.
func TestFollowed(t *testing.T) {
	testenv.Leaks(t)
	seconds, seed := setting.Number(t, "UNIFIEDD_SECONDS", 5), setting.Seed(t)
	t.Logf("UNIFIEDD_SECONDS=%d", seconds)
	region, err := umem.Open(umem.Config{Size: 16 << 20, Pages: umem.Ordinary, Extents: 4})
	testenv.Must(t, err)
	defer region.Close()
	f := &followed{T: t, random: rand.New(rand.NewPCG(seed, 1)), region: region, path: filepath.Join(testenv.DiskDir(t), "log")}
	for i := range beside {
		testenv.Must(t, os.WriteFile(fmt.Sprintf("%s-notes-of-another-program-%d", f.path, i), nil, 0o600))
	}
	var readers sync.WaitGroup
	defer readers.Wait()
	defer f.stop.Store(true)
	for i := range followers {
		random := rand.New(rand.NewPCG(seed, uint64(2+i)))
		readers.Go(func() {
			for !f.stop.Load() && !t.Failed() {
				f.follow(random, i%2 == 0)
			}
		})
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end) && !t.Failed(); {
		f.run()
	}
	f.stop.Store(true)
	readers.Wait()
	t.Logf("%d runs wrote a log of %d records; readers got %d", f.phase.Load()/2, len(f.runs), f.read.Load())
	if f.read.Load() == 0 {
		t.Error("no reader got a record")
	}
}

// record is the record of a position in a run.
func record(position, run uint64) []byte {
	payload := bytes.Repeat(binary.BigEndian.AppendUint64(nil, position*run), int(1+position*run%50))
	b := make([]byte, protocol.HeaderLen, protocol.HeaderLen+len(payload))
	protocol.PutData(b, &protocol.Data{Sequence: position, Session: 7, Stamp: run, Length: uint32(len(payload)), Checksum: protocol.Checksum(payload)})
	protocol.SetRecord(b, position, 0, 1)
	return append(b, payload...)
}

// writing is one run of the flow.
type writing struct {
	*followed
	env    *pipeline.Env
	sink   *Writer
	free   umem.FreeList
	batch  pipeline.Batch
	number uint64
	base   uint64 // position before its first record
	last   uint64
	packed bool
}

// run is one run of the flow. It ends in order, or with batches that are not written.
func (f *followed) run() {
	w := f.begin()
	for range 10 + f.random.IntN(150) {
		if f.Failed() {
			break
		}
		w.append(1 + f.random.IntN(3)*f.random.IntN(8))
		w.round(true)
		time.Sleep(time.Duration(f.random.IntN(300)) * time.Microsecond)
	}
	if f.random.IntN(3) > 0 {
		for done := false; !done; {
			w.round(false)
			var err error
			done, err = w.sink.Drain(time.Now())
			testenv.Must(f, err)
		}
	}
	for err := w.sink.Close(); err != nil; err = w.sink.Close() {
		time.Sleep(time.Millisecond)
	}
	testenv.Must(f, w.env.Undo.Run())
}

// begin opens the log. In every other run a leader lacks some of its last records.
func (f *followed) begin() *writing {
	before := ^uint64(0)
	if last := uint64(len(f.runs)); last > 0 && f.random.IntN(2) == 0 {
		before = last + 1 - uint64(f.random.IntN(int(min(last, 100))))
	}
	end, err := journal.TailBefore(f.path, before)
	testenv.Must(f, err)
	if least := min(before, f.written+1); end.Next < least || len(end.Gaps) > 0 {
		f.Fatalf("the log ends before record %d, and had %d: %v", end.Next, least-1, end.Gaps)
	}
	f.phase.Add(1)
	w := &writing{followed: f, number: f.phase.Load(), base: end.Next - 1, last: end.Next - 1, packed: f.random.IntN(2) == 0}
	w.batch.Frames = make([]umem.Frame, pipeline.Burst)
	flow := config.NewFlowOf(config.KindRDMAStorage, "followed")
	to := &flow.To
	to.File, to.Segment.Size, to.Acknowledge, to.Layout = f.path, 256*config.KiB, config.AcknowledgeWritten, config.LayoutSlot
	to.Prepare = []config.Prepare{config.PrepareNone, config.PrepareAllocate, config.PrepareZero}[f.random.IntN(3)]
	if w.packed {
		to.Layout = config.LayoutPacked
	}
	w.env = &pipeline.Env{Flow: flow, Region: f.region, Log: slog.New(slog.DiscardHandler), Do: func(f func() error) error { return f() }, Shared: pipeline.Shared{Quota: pipeline.Quota{Extents: 4}}}
	testenv.Must(f, w.env.Open())
	frames := make([]umem.Frame, 2048)
	frames = frames[:w.env.Holder.Take(frames)]
	w.free.Push(frames...)
	w.sink = New()
	manifest := &segment.Manifest{End: end, Run: journal.Run{Number: w.number, Start: end.Next}, Received: func() uint64 { return 0 }, Durable: w.sink.DurableShown, Group: func(n *journal.Manifest) bool {
		was := n.Flags
		n.Flags |= journal.FlagGroup
		return n.Flags != was
	}}
	head := journal.Grouped(journal.Source("followed", end.Next, w.number, 2048), end.Next, w.number)
	if w.base > uint64(len(f.runs)) {
		f.Fatalf("the log has record %d, and %d were appended", w.base, len(f.runs))
	}
	f.mu.Lock()
	f.runs, f.written = f.runs[:w.base], w.base
	f.mu.Unlock()
	testenv.Must(f, w.sink.Open(w.env, Config{Free: &w.free, Manifest: manifest, Interfaces: []pcapng.Interface{head}, Gather: f.random.IntN(2) == 0}))
	f.phase.Add(1)
	return w
}

// append appends records, as far as there are frames.
func (w *writing) append(n int) {
	b := &w.batch
	var one [1]umem.Frame
	for range min(n, len(b.Frames)-b.Len, w.free.Len()-400) {
		w.free.Pop(one[:])
		r := record(w.last+1, w.number)
		start, _ := w.region.Start(one[0])
		one[0] = umem.Frame{Addr: start + pcapng.PacketHeaderLen, Len: uint32(len(r))}
		copy(w.region.Bytes(one[0]), r)
		side := w.region.Side(one[0])
		*side = umem.Side{Stamp: uint64(time.Now().UnixNano()), Clock: umem.SystemClock}
		b.Frames[b.Len] = one[0]
		b.Len++
		w.last++
		w.mu.Lock()
		w.runs = append(w.runs, w.number)
		w.mu.Unlock()
	}
}

// round is one round of the worker.
func (w *writing) round(open bool) {
	now := time.Now()
	w.sink.Reap(now)
	w.sink.Write(&w.batch, now)
	w.sink.Flush(open, now)
	w.sink.Kick()
	w.env.Book.Publish()
	testenv.Must(w, w.env.Err.Get())
	w.mu.Lock()
	w.written = max(w.written, w.base+w.sink.PacketsWritten())
	w.mu.Unlock()
}

// following is one reader.
type following struct {
	*followed
	*journal.Reader
	from uint64
	got  []uint64 // runs of the records from from on
	had  uint64   // the phase in which it began
	link bool     // it ends with the run
}

// follow reads from some position on, for a while.
func (f *followed) follow(random *rand.Rand, link bool) {
	had := f.phase.Load()
	if link && had%2 > 0 {
		time.Sleep(time.Millisecond)
		return
	}
	f.mu.RLock()
	last := uint64(len(f.runs))
	f.mu.RUnlock()
	from := 1 + random.Uint64N(last+1)
	if random.IntN(2) == 0 { // near the end, or behind it
		from = max(last, 150) + 1 + random.Uint64N(200) - random.Uint64N(150)
	}
	l, err := journal.Open(f.path)
	if err != nil {
		f.Error(err)
		return
	}
	r := &following{followed: f, Reader: l.Uncommitted(from), from: from, had: had, link: link}
	err = r.poll(random, 50+random.IntN(2000))
	f.read.Add(uint64(len(r.got)))
	if err = errors.Join(err, r.Close(), l.Close()); err != nil {
		f.Errorf("a reader from record %d on, which began in phase %d, is at record %d in phase %d: %v", from, had, r.Position(), f.phase.Load(), err)
	}
}

// poll reads records.
func (f *following) poll(random *rand.Rand, records int) error {
	since := time.Now()
	for len(f.got) < records && !f.stop.Load() {
		if f.link && f.phase.Load() != f.had {
			return nil
		}
		m, err := f.Poll()
		if cut, ok := errors.AsType[*journal.Cut](err); ok && !f.link {
			f.got = f.got[:min(cut.From-min(f.from, cut.From), uint64(len(f.got)))]
			f.from = min(f.from, cut.From)
			since = time.Now()
			continue
		}
		if err == io.EOF {
			f.mu.RLock()
			late := f.written >= f.Position()
			f.mu.RUnlock()
			if !late {
				since = time.Now()
			} else if waits := time.Since(since); waits > testenv.Within(stalled) {
				return fmt.Errorf("it gets nothing for %v, and the log has records up to %d", waits, f.written)
			}
			time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
			continue
		}
		if err == nil {
			since = time.Now()
			err = f.take(&m)
		}
		if err != nil && (!f.link || f.phase.Load() == f.had) { // else what it had was cut off
			return err
		}
	}
	return f.valid()
}

// take checks a record.
func (f *following) take(m *journal.Record) error {
	if want := f.from + uint64(len(f.got)); m.Position != want || !bytes.Equal(m.Raw, record(m.Position, m.Stamp)) {
		return fmt.Errorf("record %d comes where %d should be: %+v", m.Position, want, m)
	}
	f.got = append(f.got, m.Stamp)
	return f.valid()
}

// valid reports records that the log has not, unless the log was cut since the reader began.
func (f *following) valid() error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.phase.Load() != f.had || f.had%2 > 0 || len(f.got) == 0 {
		return nil
	}
	to := f.from + uint64(len(f.got)) - 1
	if to > uint64(len(f.runs)) {
		return fmt.Errorf("record %d is behind the log's end, %d", to, len(f.runs))
	}
	if valid := f.runs[to-1]; valid != f.got[len(f.got)-1] {
		return fmt.Errorf("record %d is of run %d, and the valid one of run %d", to, f.got[len(f.got)-1], valid)
	}
	return nil
}
