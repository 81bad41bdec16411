package group

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/selftests/powercut"
)

const (
	// perGroup is how many power cuts a group has at most, because its disks are small.
	perGroup = 10
	// diskBytes is the size of a member's disk.
	diskBytes = 256 << 20
)

// powered is a group whose members have disks with volatile caches.
type powered struct {
	*group
	disks         []*powercut.Volatile
	files         []string // of the disks
	detach        []func() // removes the device of a disk
	atOnce        []int    // how many members lose their power in a cut; in turn
	pending, lost int      // writes that were not flushed at a cut, and those that a cut has taken, in part or whole
}

// TestPowerCuts: one, two or all members lose their power, with whatever their disks have not flushed, while a
// client appends. With `durable` nothing acknowledged is lost or doubled, and all logs are equal. With `written`
// and `received` that holds for one member at a time. UNIFIEDD_CUTS cuts.
func TestPowerCuts(t *testing.T) {
	testenv.Long(t, "the power is cut again and again")
	cuts, seed := setting.Number(t, "UNIFIEDD_CUTS", 3), setting.Seed(t)
	t.Logf("UNIFIEDD_CUTS=%d", cuts)
	testenv.Root(t)
	levels := []string{"durable", "durable", "durable", "written", "received"}
	for n := uint64(0); n*perGroup < cuts; n++ {
		level := levels[n%uint64(len(levels))]
		t.Run(fmt.Sprint(level, n), func(t *testing.T) {
			p := newPowered(t, seed+n, level)
			if level == "durable" {
				p.atOnce = []int{1, 2, 3}
			}
			took, gaps := map[int][]time.Duration{}, map[int][]time.Duration{}
			for i := range min(cuts-n*perGroup, perGroup) {
				at := p.atOnce[i%uint64(len(p.atOnce))]
				again, gap := p.cutPower(p.choose(at))
				took[at], gaps[at] = append(took[at], again), append(gaps[at], gap)
			}
			p.finish()
			for _, at := range p.atOnce {
				t.Logf("%s, %d at once: %d cuts; the client goes on after %s since the last boot; longest gap %s", level, at, len(gaps[at]), spread(took[at]), spread(gaps[at]))
			}
			t.Logf("the cuts have taken %d of %d writes that were not flushed", p.lost, p.pending)
		})
	}
}

// newPowered starts three daemons on disks with volatile caches. One member loses its power at a time.
func newPowered(t *testing.T, seed uint64, level string) *powered {
	t.Helper()
	p := &powered{group: &group{T: t, level: level, random: mathrand.New(mathrand.NewPCG(seed, 1)), ends: testenv.NewSwitch(t, members+1, testenv.PairOptions{MTU: 4200}),
		now: make([]*daemon.Daemon, members), logs: make([]string, members), secret: authority.New(t), boots: make([]string, members)}, detach: make([]func(), members), atOnce: []int{1}}
	image := fileSystem(t)
	for i := range members {
		p.disks = append(p.disks, powercut.NewVolatile(image))
		p.files = append(p.files, testenv.ServedFile(t, p.disks[i]))
		p.dirs = append(p.dirs, t.TempDir())
		testenv.Must(t, os.Mkdir(p.place(i), 0o755))
	}
	for i := range members {
		p.boot(i)
		p.start(i)
	}
	p.leader(-1, 0)
	return p
}

// fileSystem makes an ext4 file system with a journal.
func fileSystem(t *testing.T) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "image")
	out, err := exec.Command(testenv.Tool(t, "mkfs.ext4"), "-q", "-F", "-m", "0", "-J", "size=8", "-E", "lazy_itable_init=0,lazy_journal_init=0", name, fmt.Sprintf("%dk", diskBytes>>10)).CombinedOutput()
	if err != nil {
		t.Fatalf("make a file system: %v\n%s", err, out)
	}
	image, err := os.ReadFile(name)
	testenv.Must(t, err)
	return image
}

// boot makes a program that starts the daemon as on a machine that has just booted: its disk is mounted, and it has
// another boot id. Both are in a mount namespace that ends with the daemon, and that no other process gets a copy of.
func (p *powered) boot(i int) {
	p.Helper()
	device, detach := testenv.Attached(p.T, p.files[i])
	p.detach[i] = detach
	dir := p.TempDir()
	id, script := filepath.Join(dir, "boot_id"), filepath.Join(dir, "start")
	var b [16]byte
	_, _ = rand.Read(b[:]) // does not fail
	text := fmt.Sprintf("#!/bin/sh\nexec unshare -m sh -c 'mount -t ext4 -o noatime %s %s && mount --bind %s /proc/sys/kernel/random/boot_id && exec \"$@\"' start %s \"$@\"\n", device, p.place(i), id, program)
	err := os.WriteFile(id, fmt.Appendf(nil, "%x-%x-%x-%x-%x\n", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), 0o600)
	testenv.Must(p, err, os.WriteFile(script, []byte(text), 0o700))
	p.boots[i] = script
}

// choose chooses members: half of the time the leader is among them.
func (p *powered) choose(n int) []int {
	all := p.random.Perm(members)
	if who, _ := p.leader(-1, 0); p.random.IntN(2) == 0 {
		at := slices.Index(all, who)
		all[0], all[at] = all[at], all[0]
	}
	return all[:n]
}

// cutPower cuts the power of members under load, boots them again, and waits until the client goes on.
func (p *powered) cutPower(who []int) (took, gap time.Duration) {
	p.Helper()
	if p.client != nil {
		p.client.Await(p.T, limit) // the gap of each cut is of one client
	}
	p.settled()
	p.progresses()
	time.Sleep(time.Duration(p.random.IntN(300)) * time.Millisecond)
	leader, _ := p.leader(-1, 0)
	seen := len(p.heardGaps())
	p.powerOff(who, func() powercut.Fate { return powercut.AnyFate(p.random) })
	p.random.Shuffle(len(who), func(i, j int) { who[i], who[j] = who[j], who[i] })
	for _, i := range who {
		time.Sleep(time.Duration(p.random.IntN(500)) * time.Millisecond)
		p.ends[i].SetUp(p.T)
		p.boot(i)
		p.heal(i)
	}
	began := time.Now()
	p.progresses()
	took = time.Since(began)
	for _, one := range p.heardGaps()[seen:] {
		gap = max(gap, one)
	}
	p.Logf("the client goes on %v after the last boot; longest gap %v; member %d led before", took.Round(time.Millisecond), gap, leader+1)
	return took, gap
}

// powerOff cuts the power of members. Nothing that they have said after the cut of their disks reaches anybody:
// their links are down before. fate says what becomes of the writes of a disk.
func (p *powered) powerOff(who []int, fate func() powercut.Fate) {
	p.Helper()
	for _, i := range who {
		p.ends[i].SetDown(p.T)
	}
	for _, i := range who {
		c := p.disks[i].Cut(fate(), p.random)
		p.pending, p.lost = p.pending+c.Pending, p.lost+c.Pending-c.Kept+c.Torn
		p.Logf("the power of member %d is cut: of %d pending writes %d are kept, %d of them torn (%v)", i+1, c.Pending, c.Kept, c.Torn, c.Fate)
	}
	for _, i := range who {
		p.now[i].Kill()
		p.detach[i]()
		p.disks[i].Restore()
	}
}

// finish checks the logs.
func (p *powered) finish() {
	p.Helper()
	p.client.Await(p.T, limit)
	p.equal()
	for i := range members {
		p.now[i].Terminate(p.T)
	}
	for i := range members {
		p.open(i)
	}
	p.compare()
}

// open mounts the disk of a member whose daemon has ended.
func (p *powered) open(i int) {
	p.Helper()
	p.detach[i]()
	device, _ := testenv.Attached(p.T, p.files[i])
	testenv.Mount(p.T, device, p.place(i))
}

// TestLyingDisks: the check finds that acknowledged messages are lost when the disks of all members lose what
// they have called durable.
func TestLyingDisks(t *testing.T) {
	testenv.Long(t, "the power is cut")
	testenv.Root(t)
	p := newPowered(t, 1, "durable")
	p.progresses()
	for _, d := range p.disks {
		d.Lie()
	}
	p.client.Await(t, limit)
	p.powerOff([]int{0, 1, 2}, func() powercut.Fate { return powercut.Lost })
	for i := range members {
		p.ends[i].SetUp(t)
		p.boot(i)
		p.heal(i)
	}
	p.settled()
	for i, d := range p.now {
		d.Terminate(t)
		p.open(i)
		out, err := p.ends[i].Command(flowTest, "log", "-file", filepath.Join(p.place(i), "orders"), "-count", fmt.Sprint(p.count)).CombinedOutput()
		t.Logf("%s", out)
		if err == nil {
			t.Errorf("nobody notices what the disk of member %d has lost", i+1)
		}
	}
}
