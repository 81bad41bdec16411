package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// life is one run of the daemon that ends with a kill.
type life struct {
	first uint64      // number of the run's first packet
	last  status.Flow // the last status of the run
}

// TestKill: after a kill at a random moment, with random settings, the next daemon recovers all
// durable packets.
func TestKill(t *testing.T) { kill(t, false) }

// TestKillPassive is TestKill for packet sockets.
func TestKillPassive(t *testing.T) {
	testenv.Long(t, "TestKill kills a daemon with the other engine")
	kill(t, true)
}

func kill(t *testing.T, passive bool) {
	t.Helper()
	kills, seed := setting.Number(t, "UNIFIEDD_KILLS", few), setting.Seed(t)
	t.Logf("UNIFIEDD_KILLS=%d", kills)
	testenv.Root(t)
	testenv.HugePages(t, 66<<20)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	k := &killer{t: t, Pair: p, dir: testenv.DiskDir(t), random: rand.New(rand.NewPCG(seed, 0)), long: kills > few, passive: passive}
	for i := uint64(0); k.goOn(i, kills); i++ {
		k.next(i)
	}
	old := sequence(t, k.dir)
	d := launch(t, &p.B, k.dir, k.settings(0))
	d.Running(t)
	k.verify(d, old)
	d.Terminate(t)
	if left := prepared(t, k.dir); len(left) > 0 {
		t.Errorf("after a proper end there are %v", left)
	}
	if k.recovered == 0 {
		t.Errorf("no file needed recovery: %d kills hit nothing", max(kills, enough))
	}
	t.Logf("%d durable packets, %d files recovered", k.durable, k.recovered)
}

// killer is the state of TestKill between two kills.
type killer struct {
	t *testing.T
	*testenv.Pair
	dir       string
	random    *rand.Rand
	long      bool
	passive   bool
	before    *life // the life whose files are not verified yet
	durable   uint64
	recovered int
}

// few is the number of kills in the short form.
const few = 3

// span is how long a daemon runs under traffic.
func (k *killer) span() time.Duration {
	most := 600
	if k.long {
		most = 1300
	}
	return time.Duration(100+k.random.IntN(most)) * time.Millisecond
}

// enough kills make at least one recovery likely. A kill between two writes leaves a file that
// needs no recovery.
const enough = 12

// goOn reports whether kill i is needed. After the requested kills, more follow while no file
// needed recovery.
func (k *killer) goOn(i, kills uint64) bool {
	return i < kills || k.recovered == 0 && i < enough
}

// settings is the configuration for kill i. Layouts and durabilities alternate; the rest is random.
func (k *killer) settings(i uint64) string {
	pick := func(of ...string) string { return of[k.random.IntN(len(of))] }
	from, layout := "ring: 4096", []string{"packed", "slot"}[i%2]
	if k.passive {
		from, layout = "engine: packet, buffer: "+pick("2MiB", "16MiB"), "packed"
	}
	return fmt.Sprintf(`
region: {size: 64MiB, extent: 512KiB, extents: 16}
workers: [{name: main, sleep: %s}]
flows:
  - name: cap
    from: {interface: %s, %s}
    to: {file: %s/cap, layout: %s, segment: {size: %s}, prepare: %s, flush: %s, durable: %s}
`, pick("200us", "0s"), k.B.Ifname, from, k.dir, layout, pick("2MiB", "4MiB", "9MiB", "32MiB"),
		pick("zero", "allocate", "none"), pick("10ms", "50ms", "200ms"), []string{"20ms", "written", "100ms", "1ms", "300ms"}[i%5])
}

// next is one life of the daemon: it recovers the files of the life before, captures, and is killed.
func (k *killer) next(i uint64) {
	t := k.t
	settings := k.settings(i)
	old := sequence(t, k.dir)
	d := launch(t, &k.B, k.dir, settings)
	if i%4 == 3 { // one kill in four comes while the daemon starts
		time.Sleep(time.Duration(k.random.IntN(150)) * time.Millisecond)
		d.Kill()
		k.nothingLeft()
		return
	}
	d.Running(t)
	k.verify(d, old)
	now := &life{first: i << 32}
	traffic := send(t, k.Pair, now.first, 12000)
	end := time.Now().Add(k.span())
	for time.Now().Before(end) {
		s, err := d.Status()
		if err != nil {
			t.Fatalf("status: %v\n%s", err, d.Log)
		}
		now.see(t, s.Flows[0])
		time.Sleep(time.Duration(k.random.IntN(3000)) * time.Microsecond)
	}
	d.Kill()
	traffic.halt()
	k.before = now
	t.Logf("killed with %d packets received, %d written, %d durable in %d segments: %s",
		now.last.Packets, now.last.Written.Packets, now.last.Durable.Packets, now.last.Segments, settings[strings.Index(settings, "layout"):])
	k.nothingLeft()
}

// see compares a status with the one before.
func (l *life) see(t *testing.T, s status.Flow) {
	t.Helper()
	if s.Durable.Packets > s.Written.Packets || s.Written.Packets > s.Packets {
		t.Errorf("%d durable, %d written, %d received", s.Durable.Packets, s.Written.Packets, s.Packets)
	}
	if s.Durable.Packets < l.last.Durable.Packets || s.Written.Packets < l.last.Written.Packets {
		t.Errorf("went back from %+v to %+v", l.last, s)
	}
	l.last = s
}

// verify checks the files of the life before, up to number old, and removes them. d has recovered them.
func (k *killer) verify(d *daemon.Daemon, old string) {
	t := k.t
	t.Helper()
	upTo := func(files []string) []string {
		return slices.DeleteFunc(files, func(name string) bool { return number(t, name) > old })
	}
	files := upTo(segments(t, k.dir))
	k.recovered += strings.Count(d.Log.String(), "segment recovered")
	if left := upTo(prepared(t, k.dir)); len(left) > 0 {
		t.Errorf("not recovered: %v", left)
	}
	if k.before == nil {
		if len(files) > 0 {
			t.Errorf("there are %v, and nothing was captured", files)
		}
		return
	}
	read(t, files)
	s := &k.before.last
	// The page cache survives a kill. So packets that were only written must be there too.
	contiguous(t, numbers(t, files), k.before.first, max(s.Durable.Packets, s.Written.Packets), s)
	k.durable += s.Durable.Packets
	for _, name := range files {
		testenv.Check(t, os.Remove(name))
	}
	k.before = nil
}

// nothingLeft checks that the kernel has freed the killed daemon's program. That it frees the huge pages is tested in the lab
// guest (umem's TestKilled), where nobody else takes any.
func (k *killer) nothingLeft() {
	t := k.t
	t.Helper()
	testenv.Wait(t, 10*time.Second, "the program to be taken off "+k.B.Ifname, func() bool { return k.program() == 0 })
}

// program returns the XDP program on end B; 0: none.
func (k *killer) program() (id uint32) {
	k.B.Do(k.t, func() {
		link, err := netlink.LinkByName(k.B.Ifname)
		testenv.Must(k.t, err)
		if x := link.Attrs().Xdp; x != nil && x.Attached {
			id = x.ProgId
		}
	})
	return id
}
