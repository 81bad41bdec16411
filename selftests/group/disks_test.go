package group

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// diskSize is the size of a member's disk in a test that fills it or makes it hang.
const diskSize = 2 << 30

// mount gives a member a disk of its own: a file system in a file. The test's mount namespace has it.
func (g *group) mount(i int) {
	g.Helper()
	file := filepath.Join(g.dirs[i], "image")
	testenv.Must(g, os.WriteFile(file, nil, 0o600), os.Truncate(file, diskSize), os.Mkdir(g.place(i), 0o755))
	if out, err := exec.Command(testenv.Tool(g, "mkfs.ext4"), "-q", "-F", "-m", "0", file).CombinedOutput(); err != nil {
		g.Fatalf("make a file system: %v\n%s", err, out)
	}
	device := testenv.Loop(g, file, 0)
	testenv.Must(g, unix.Mount(device, g.place(i), "ext4", 0, ""))
	g.Cleanup(func() { testenv.Check(g, unix.Unmount(g.place(i), 0)) })
}

// fill fills the disk of a member. What it has prepared for its next records it still uses.
func (g *group) fill(who int) (end func()) {
	g.Helper()
	g.Logf("the disk of member %d is full", who+1)
	name := filepath.Join(g.place(who), "fill")
	f, err := os.Create(name)
	testenv.Must(g, err)
	defer f.Close()
	at := int64(0)
	for step := int64(16 << 20); step >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, at, step); {
		case errors.Is(err, unix.ENOSPC):
			step /= 2
		case err != nil:
			g.Fatal(err)
		default:
			at += step
		}
	}
	return func() { testenv.Must(g, os.Remove(name)) }
}

// hang makes the disk of a member take nothing.
func (g *group) hang(who int) (end func()) {
	g.Helper()
	g.Logf("the disk of member %d hangs", who+1)
	thaw, err := testenv.Freeze(g.place(who))
	testenv.Must(g, err)
	over := false
	end = func() {
		if !over {
			over = true
			testenv.Must(g, thaw())
		}
	}
	g.Cleanup(end) // a frozen file system cannot be unmounted
	return end
}

// TestLeadersDisk: whatever the disk of a leader does, a majority that is well goes on, and nothing is lost.
func TestLeadersDisk(t *testing.T) {
	testenv.Root(t)
	g := newMounted(t, 1)
	g.leader(-1, 0)
	for n, begin := range []func(int) func(){g.fill, g.hang} {
		g.progresses()
		who, epoch := g.leader(-1, 0)
		end := begin(who)
		next, _ := g.leaderUnder(who, epoch)
		t.Logf("member %d leads after the disk of member %d has failed", next+1, who+1)
		if text := g.now[who].Log.String(); n == 0 && !handsOver.MatchString(text) {
			t.Errorf("a leader whose disk is full has not handed over because of that")
		}
		g.progresses()
		end()
		g.settled()
	}
	g.client.Await(t, limit)
	g.equal()
	for _, d := range g.now {
		d.Terminate(t)
	}
	g.compare()
}

// handsOver is the line of a leader that hands over before its disk stands still.
var handsOver = regexp.MustCompile(`this leader hands over: another member's disk is better.*no space left on device`)

// leaderUnder is leader while clients append.
func (g *group) leaderUnder(but int, after uint64) (who int, epoch uint64) {
	g.Helper()
	testenv.Wait(g.T, testenv.Within(limit), "another member to lead", func() bool {
		g.load()
		who, epoch = g.newest()
		return who != but && epoch > after
	})
	return who, epoch
}

// TestDamagedLeader: a leader that cannot read a record which a follower lacks leaves it to another member to lead, which
// can.
func TestDamagedLeader(t *testing.T) {
	testenv.Root(t)
	r := newRoster(t, 3, 3, -1, soon)
	r.load()
	r.committed(rate / 4)
	r.finishClient()
	leader, _ := r.leader(0)
	last := (leader + 1) % 3
	r.now[last].Kill()
	r.now[last] = nil
	r.load()
	r.committed(2 * rate) // more than the leader keeps in memory for it
	r.finishClient()
	damage(t, r.dirs[leader], r.position(leader)-rate)
	r.start(last)
	testenv.Wait(t, testenv.Within(limit), "the follower to have all records", func() bool {
		who, _ := r.leader(0)
		s, err := r.now[last].Status()
		return err == nil && s.Flows[0].Group != nil && s.Flows[0].Group.Last >= r.position(who)
	})
	if who, _ := r.leader(0); who == leader {
		t.Error("the leader whose log is damaged still leads")
	}
}

// finishClient waits for the end of the client.
func (r *roster) finishClient() {
	r.Helper()
	r.client.Await(r.T, limit)
	r.client = nil
}

// damage flips a bit in the payload of a record in the segments of a directory.
func damage(t *testing.T, dir string, position uint64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "orders-*.pcapng"))
	testenv.Must(t, err)
	for _, name := range files {
		raw, err := os.ReadFile(name)
		testenv.Must(t, err)
		for at := 0; ; {
			n := bytes.Index(raw[at:], []byte("uMSG"))
			if n < 0 {
				break
			}
			at += n
			if at+72 <= len(raw) && fmt.Sprintf("%x", raw[at+24:at+32]) == fmt.Sprintf("%016x", position) {
				f, err := os.OpenFile(name, os.O_WRONLY, 0)
				testenv.Must(t, err)
				_, err = f.WriteAt([]byte{raw[at+66] ^ 1}, int64(at+66))
				testenv.Must(t, errors.Join(err, f.Close()))
				return
			}
			at += 4
		}
	}
	t.Fatalf("there is no record %d in %s", position, strings.Join(files, ", "))
}

// burn keeps processors busy, as other programs of a machine do.
func burn(t *testing.T, processes int) {
	for range processes {
		c := exec.Command("sh", "-c", "while :; do :; done")
		testenv.Must(t, c.Start())
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
	}
}

// stopped stops a leader for 1 to 4 s.
func stopped(g *group, who int) (end func()) {
	until := time.Now().Add(time.Second + time.Duration(g.random.Int64N(int64(3*time.Second))))
	g.pause(who)
	return func() {
		time.Sleep(time.Until(until)) // that is the fault
		g.heal(who)
	}
}

// handOver makes another member lead.
func handOver(g *group, who int) (end func()) {
	to := (who + 1 + g.random.IntN(members-1)) % members
	g.Logf("member %d hands over to member %d", who+1, to+1)
	if text, err := g.now[who].Control("group", "transfer", "orders", fmt.Sprintf("m%d", to+1)); err != nil {
		g.Errorf("hand over: %v\n%s", err, text)
	}
	return func() {}
}

// stopInOrder stops a leader in order, and starts it again.
func stopInOrder(g *group, who int) (end func()) {
	g.Logf("member %d is stopped in order", who+1)
	g.now[who].Terminate(g.T)
	return func() { g.heal(who) }
}
