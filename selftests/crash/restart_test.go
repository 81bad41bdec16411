package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// TestKillKeep: the daemon is killed, ended, and its flow stopped, started and reloaded, in random order, with and without
// traffic, and with each limit of segment.keep. Nothing is deleted that the limit does not allow: what is missing of the
// packets that were sent was in the oldest segments, and those that are left reach the limit.
func TestKillKeep(t *testing.T) {
	rounds, seed := setting.Number(t, "UNIFIEDD_KILLS", 2*few), setting.Seed(t)
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	for i, limit := range []keepLimit{{"count", "4", 4, 0, 0}, {"size", "7MiB", 0, 7 << 20, 0}, {"time", "2s", 0, 0, 2 * time.Second}, {"all", "[6, 9MiB, 1h]", 6, 9 << 20, time.Hour}} {
		if testing.Short() && limit.name != "count" && limit.name != "all" {
			continue
		}
		t.Run(limit.name, func(t *testing.T) {
			k := &keeper{t: t, Pair: p, dir: testenv.DiskDir(t), random: rand.New(rand.NewPCG(seed, uint64(i))), limit: limit}
			for n := range rounds {
				k.round(n)
			}
			if k.deleted == 0 && limit.age == 0 && rounds > 2*few {
				t.Error("nothing was ever deleted: the limit was never reached")
			}
			t.Logf("%d rounds, %d packets sent, %d deleted by keep: %s, %d in the files", rounds, k.sent, k.deleted, limit.text, len(k.all()))
		})
	}
}

// keepLimit is a value of segment.keep, and what it means.
type keepLimit struct {
	name  string
	text  string
	count int
	bytes int64
	age   time.Duration
}

// stored is a segment as a test saw it last.
type stored struct {
	packets []uint64
	bytes   int64
	ended   time.Time
}

// keeper is the state of TestKillKeep between two rounds.
type keeper struct {
	t *testing.T
	*testenv.Pair
	dir     string
	random  *rand.Rand
	limit   keepLimit
	files   map[string]stored // as the round before left them, all of them complete
	sent    uint64
	inRun   uint64 // of those, since the flow began
	comment int    // of the configuration
	deleted int    // packets
}

// segmentBytes is the size of a segment.
const segmentBytes = 1 << 20

// settings is the configuration; a reload to another comment restarts the flow.
func (k *keeper) settings(comment int) string {
	return fmt.Sprintf(`
region: {size: 32MiB, pages: ordinary, extent: 256KiB, extents: 16}
workers: [{name: main, sleep: 200us}]
flows:
  - name: cap
    from: {interface: %s, ring: 2048}
    to: {file: %s/cap, comment: "%d", segment: {size: 1MiB, keep: %s}, flush: 10ms, durable: 20ms}
`, k.B.Ifname, k.dir, comment, k.limit.text)
}

// round is one life of the daemon.
func (k *keeper) round(n uint64) {
	t := k.t
	t.Helper()
	d := launch(t, &k.B, k.dir, k.settings(0))
	if k.random.IntN(6) == 0 { // it may not even have begun
		time.Sleep(time.Duration(k.random.IntN(80)) * time.Millisecond)
		d.Kill()
		return // what it leaves is looked at after a start
	}
	d.Running(t)
	k.inRun = 0
	before := k.look("after the start")
	k.compare(k.files, before, nil)
	var written []uint64 // packets of this life that must be in files, or be deleted by the limit
	for range 1 + k.random.IntN(3) {
		if k.random.IntN(2) == 0 {
			written = append(written, k.traffic(d)...)
		}
		switch k.random.IntN(3) {
		case 0:
			k.control(d, "stop", "cap")
			k.control(d, "start", "cap")
		case 1:
			k.comment++
			d.Configure(t, k.settings(k.comment))
			k.control(d, "reload")
		}
	}
	if k.random.IntN(2) == 0 {
		d.Kill()
	} else {
		d.Terminate(t)
	}
	d = launch(t, &k.B, k.dir, k.settings(0)) // completes what the kill left
	d.Running(t)
	d.Terminate(t)
	now := k.look("after the end")
	k.compare(before, now, written)
	k.files = now
}

func (k *keeper) control(d *daemon.Daemon, args ...string) {
	k.t.Helper()
	if said, err := d.Control(args...); err != nil {
		k.t.Fatalf("%v: %v: %s\n%s", args, err, said, d.Log)
	}
	if args[0] != "stop" {
		d.Running(k.t)
		k.inRun = 0
	}
}

// traffic sends packets until some are durable, and returns the numbers of the durable ones. The interface loses none:
// the sender waits for the flow.
func (k *keeper) traffic(d *daemon.Daemon) (durable []uint64) {
	t := k.t
	t.Helper()
	count := 200 + k.random.IntN(3000)
	base := d.Until(t, "earlier packets to be durable", func(s *status.Daemon) bool { // they would count as some of these
		f := &s.Flows[0]
		return f.Durable.Packets == f.Packets && f.Packets+dropped(f) >= k.inRun
	})
	tr := send(t, k.Pair, k.sent, 20000)
	s := d.Until(t, "packets to be durable", func(s *status.Daemon) bool {
		f := &s.Flows[0]
		return f.Durable.Packets >= base.Flows[0].Durable.Packets+uint64(count)
	})
	first, sent := k.sent, tr.halt()
	k.sent, k.inRun = k.sent+sent, k.inRun+sent
	f := &s.Flows[0]
	if dropped(f) > 0 {
		return nil // the files show what came, and not which of it was durable
	}
	for n := range f.Durable.Packets - base.Flows[0].Durable.Packets {
		durable = append(durable, first+n)
	}
	return durable
}

// dropped returns how many packets a flow lost.
func dropped(f *status.Flow) (lost uint64) {
	for _, n := range f.Dropped {
		lost += n
	}
	return lost
}

// look reads all segments. None may be empty.
func (k *keeper) look(when string) map[string]stored {
	t := k.t
	t.Helper()
	all := map[string]stored{}
	for _, path := range segments(t, k.dir) {
		info, err := os.Stat(path)
		testenv.Must(t, err)
		s := stored{packets: numbers(t, []string{path}), bytes: info.Size(), ended: info.ModTime()}
		if len(s.packets) == 0 {
			t.Errorf("%s: %s has no packets", when, path)
		}
		all[path] = s
	}
	return all
}

func (k *keeper) all() (numbers []uint64) {
	for _, s := range k.files {
		numbers = append(numbers, s.packets...)
	}
	return numbers
}

// compare checks what is missing of the segments before, and of the packets that were durable since.
func (k *keeper) compare(before, now map[string]stored, durable []uint64) {
	t := k.t
	t.Helper()
	var missing []uint64
	var largest int64 // segment that is missing
	var youngest time.Time
	here := map[uint64]bool{}
	oldest := ^uint64(0)
	var bytes int64
	for _, s := range now {
		bytes += s.bytes
		for _, n := range s.packets {
			here[n], oldest = true, min(oldest, n)
		}
	}
	for path, s := range before {
		if _, still := now[path]; still {
			continue
		}
		largest = max(largest, s.bytes)
		if s.ended.After(youngest) {
			youngest = s.ended
		}
	}
	for _, s := range before {
		for _, n := range s.packets {
			if !here[n] {
				missing = append(missing, n)
			}
		}
	}
	for _, n := range durable {
		if !here[n] {
			missing, largest = append(missing, n), max(largest, segmentBytes)
		}
	}
	k.limits(now, bytes)
	if len(missing) == 0 {
		return
	}
	k.deleted += len(missing)
	for _, n := range missing {
		if n > oldest {
			t.Fatalf("packet %d is missing, and packet %d is there", n, oldest)
		}
	}
	reached := k.limit.count > 0 && len(now) >= k.limit.count ||
		k.limit.bytes > 0 && bytes+largest+2*segmentBytes > k.limit.bytes || // one is written and one prepared
		k.limit.age > 0 && (durable != nil || time.Since(youngest) > k.limit.age)
	if !reached {
		t.Fatalf("keep: %s: %d packets were deleted, up to %d, and there are %d segments with %d bytes: %v", k.limit.text, len(missing), missing[len(missing)-1], len(now), bytes, names(now))
	}
}

// limits checks that no more is there than the limits allow.
func (k *keeper) limits(now map[string]stored, bytes int64) {
	k.t.Helper()
	if k.limit.count > 0 && len(now) > k.limit.count || k.limit.bytes > 0 && bytes > k.limit.bytes {
		k.t.Errorf("keep: %s: there are %d segments with %d bytes", k.limit.text, len(now), bytes)
	}
}

func names(of map[string]stored) string {
	var all []string
	for path := range of {
		all = append(all, filepath.Base(path))
	}
	return strings.Join(all, " ")
}
