package transfer

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/transfer"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// program is the path of unifiedd, built once.
var program, flowTest string

func TestMain(m *testing.M) { os.Exit(daemon.WithPrograms(m.Run, &program, &flowTest)) }

// few is the number of kills and cuts in the short form.
const few = 6

// limit is how long a copy may take, with all its kills.
const limit = 3 * time.Minute

// process is a send or receive command.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    daemon.Log
	exited chan struct{}
}

// start starts a command in the namespace of an end.
func start(t *testing.T, e *testenv.End, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: e.Command(program, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	testenv.Must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // its state says how it ended
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill kills the process that works: the started one is its parent, and ends with it.
func (p *process) kill() {
	for !p.ended() {
		victims := children(p.cmd.Process.Pid)
		for _, pid := range victims {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		if len(victims) == 0 {
			_ = p.cmd.Process.Kill()
		}
		select {
		case <-p.exited:
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// children returns the processes that a process has started.
func children(pid int) (all []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, name := range tasks {
		text, _ := os.ReadFile(name) // the thread may have ended
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// world is two machines with a link, and what is copied between them.
type world struct {
	*testing.T
	*testenv.Pair
	random  *rand.Rand
	dir     string // of sources
	state   string
	events  uint64 // that are left
	resumed uint64 // bytes
	kills   map[string]int
}

// job is one copy.
type job struct {
	name   string
	source string
	place  string // of the receiver: a directory, or a device
	copied string // what is compared
	size   int64
}

// TestKill: while copies of files, files with holes and devices are in progress, either side is killed, or the link is cut,
// at random moments. Each copy is equal in the end, and has had its name no sooner. Each connection goes on from what was
// durable.
func TestKill(t *testing.T) {
	testenv.Long(t, "the processes are killed again and again")
	testenv.Root(t)
	events, seed := setting.Number(t, "UNIFIEDD_KILLS", few), setting.Seed(t)
	t.Logf("UNIFIEDD_KILLS=%d", events)
	w := &world{T: t, Pair: testenv.NewPair(t, testenv.PairOptions{MTU: 4200}), random: rand.New(rand.NewPCG(seed, 0)), dir: testenv.DiskDir(t), state: testenv.DiskDir(t),
		events: events, kills: map[string]int{}}
	jobs := w.jobs()
	for n := 0; w.events > 0; n++ {
		w.copy(jobs[n%len(jobs)])
	}
	t.Logf("%v; %d bytes were resumed", w.kills, w.resumed)
	if w.resumed == 0 {
		t.Error("nothing was resumed")
	}
}

// jobs makes sources of 96 MiB.
func (w *world) jobs() []job {
	const size = 96<<20 + 4096*3
	dense, sparse := filepath.Join(w.dir, "dense"), filepath.Join(w.dir, "sparse")
	random(w, dense, size, nil)
	random(w, sparse, 3*size, func(at int64) bool { return at>>20%3 == 0 })
	from, to := testenv.Loop(w, dense, 0), testenv.Loop(w, testenv.DiskFile(w, size), 0)
	in := testenv.DiskDir(w)
	return []job{
		{"file", dense, in, filepath.Join(in, "file"), size},
		{"sparse", sparse, in, filepath.Join(in, "sparse"), 3 * size},
		{"device", from, in, filepath.Join(in, "device"), size},
		{"onto", dense, to, to, size},
	}
}

// random makes a file of random bytes, with holes where data says so.
func random(t testing.TB, path string, size int64, data func(at int64) bool) {
	t.Helper()
	f, err := os.Create(path)
	testenv.Must(t, err)
	r, b := rand.NewPCG(uint64(size), 7), make([]byte, 1<<20)
	for at := int64(0); at < size && err == nil; at += int64(len(b)) {
		if data != nil && !data(at) {
			continue
		}
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], r.Uint64())
		}
		_, err = f.WriteAt(b[:min(int64(len(b)), size-at)], at)
	}
	testenv.Must(t, err, f.Truncate(size), f.Sync(), f.Close())
}

// receive starts a receiver, and waits until it listens.
func (w *world) receive(j job) *process {
	w.Helper()
	p := start(w.T, &w.B, "receive", "--rdma", "roce:"+w.B.Ifname, "--pages", "ordinary", "--piece", "1MiB", "--memory", "8MiB", "--state", w.state, "--force", "-Z", "root", j.place)
	testenv.Wait(w, 30*time.Second, "the receiver to listen", func() bool {
		if p.ended() {
			w.Fatalf("the receiver has ended: %s", p.log.String())
		}
		return strings.Contains(p.log.String(), "listening")
	})
	return p
}

// send starts a sender. Its rate makes a copy last for some seconds.
func (w *world) send(j job) *process {
	return start(w.T, &w.A, "send", "--rdma", "roce:"+w.A.Ifname, "--pages", "ordinary", "--piece", "1MiB", "--memory", "8MiB", "--limit", "32MiB", "--as", j.name, "-Z", "root", j.source, w.B.IP.String())
}

// copy makes one copy, with kills and cuts.
func (w *world) copy(j job) {
	w.Helper()
	began := time.Now()
	receiver, sender := w.receive(j), w.send(j)
	least := uint64(0) // what the present sender must have found there
	for n := 0; !w.finished(j, sender, receiver); n++ {
		if sender.ended() { // there was no receiver, or no link, for the first connection, which is not tried again
			sender = w.send(j)
			continue
		}
		if time.Since(began) > limit {
			w.Fatalf("%s takes too long: sender: %s, receiver: %s", j.name, sender.log.String(), receiver.log.String())
		}
		if w.events == 0 || n > 12 {
			continue
		}
		w.events--
		what := []string{"sender", "receiver", "both", "link"}[w.random.IntN(4)]
		w.kills[what]++
		if what == "link" {
			w.A.SetDown(w.T)
			time.Sleep(time.Duration(w.random.IntN(4000)) * time.Millisecond)
			w.A.SetUp(w.T)
			continue
		}
		if what != "receiver" {
			sender.kill()
		}
		if what != "sender" {
			receiver.kill()
			w.check(j)
			receiver = w.receive(j)
		}
		if what == "receiver" {
			continue
		}
		if strings.Contains(sender.log.String(), "sent ") { // it was ready before the kill
			break
		}
		least = w.durable(j)
		sender = w.send(j)
	}
	if strings.Count(receiver.log.String(), " bytes from ") > 1 { // the copy of a killed sender was complete before it could say so, and was made again
		least = 0
	}
	w.complete(j, sender, least)
	end(w.T, receiver)
	if w.Failed() {
		w.Fatalf("sender: %s, receiver: %s", sender.log.String(), receiver.log.String())
	}
	if j.place != j.copied {
		if err := os.Remove(j.copied); err != nil {
			w.Error(err)
		}
	}
}

// durable returns how much of a copy is recorded as durable, if it is not complete.
func (w *world) durable(j job) uint64 {
	w.Helper()
	all, err := transfer.Incomplete(j.place, w.state)
	testenv.Must(w, err)
	for _, one := range all {
		if one.Name == j.copied && !one.Complete {
			return one.Durable
		}
	}
	return 0
}

// finished waits for the next moment to break something, and reports whether the sender has ended well. Most moments are
// some time after more has become durable.
func (w *world) finished(j job, sender, receiver *process) bool {
	w.Helper()
	from, moved := w.durable(j), time.Duration(w.random.IntN(1500))*time.Millisecond
	early := w.random.IntN(4) == 0
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		select {
		case <-sender.exited:
			if log := sender.log.String(); strings.Contains(log, "connection refused") || strings.Contains(log, "is DOWN") {
				return false
			}
			if !sender.cmd.ProcessState.Success() {
				w.Fatalf("%s: %v: %s, receiver: %s", j.name, sender.cmd.ProcessState, sender.log.String(), receiver.log.String())
			}
			return true
		case <-time.After(20 * time.Millisecond):
		}
		if early || w.durable(j) > from {
			early, from = false, 1<<62
			end = time.Now().Add(moved)
		}
	}
	return false
}

// check looks at what a killed receiver has left: what it calls durable is there, and a copy that is not complete has no
// name.
func (w *world) check(j job) {
	w.Helper()
	n := int64(w.durable(j))
	if n == 0 {
		return
	}
	part := j.copied
	if j.place != j.copied {
		part = filepath.Join(filepath.Dir(j.copied), "."+filepath.Base(j.copied)+".unifiedd-part")
		if _, err := os.Stat(part); errors.Is(err, os.ErrNotExist) && n == j.size { // it was killed before it removed the record
			part = j.copied
		} else if _, err := os.Stat(j.copied); err == nil && hash(w, j.copied, j.size) != hash(w, j.source, j.size) { // it may be an earlier copy
			w.Errorf("%s has its name, and %d of %d bytes", j.name, n, j.size)
		}
	}
	if hash(w, part, n) != hash(w, j.source, n) {
		w.Errorf("%s: the first %d bytes are durable, and are not those of the source", j.name, n)
	}
}

// hash hashes the first bytes of a file.
func hash(t testing.TB, path string, n int64) [32]byte {
	t.Helper()
	f, err := os.Open(path)
	testenv.Must(t, err)
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyN(h, f, n); err != nil {
		t.Fatal(err)
	}
	return [32]byte(h.Sum(nil))
}

var summary = regexp.MustCompile(`sent (\d+) bytes in .*; (\d+) bytes? of holes, (\d+) bytes were there, (\d+) connections?`)

// complete checks a copy that is complete, and the sender's account of it. The sender must have found at least that many
// bytes.
func (w *world) complete(j job, sender *process, least uint64) {
	w.Helper()
	if hash(w, j.copied, j.size) != hash(w, j.source, j.size) {
		w.Fatalf("%s differs from %s", j.copied, j.source)
	}
	if j.place != j.copied {
		entries, err := os.ReadDir(j.place)
		testenv.Must(w, err)
		for _, e := range entries {
			if e.Name() != filepath.Base(j.copied) {
				w.Errorf("%s is left beside %s", e.Name(), j.copied)
			}
		}
	}
	m := summary.FindStringSubmatch(sender.log.String())
	if m == nil {
		w.Fatalf("the sender prints no summary: %s", sender.log.String())
	}
	var n [5]int64
	for i := 1; i < len(n); i++ {
		n[i], _ = strconv.ParseInt(m[i], 10, 64)
	}
	if w.resumed += uint64(n[3]); uint64(n[3]) < least {
		w.Errorf("%s: %d bytes were durable, and the sender found %d", j.name, least, n[3])
	}
	if sum := n[1] + n[2] + n[3]; n[4] == 1 && sum != j.size || sum < j.size {
		w.Errorf("%s of %d bytes: %s", j.name, j.size, m[0])
	}
}

// end ends a receiver.
func end(t *testing.T, p *process) {
	t.Helper()
	_ = p.cmd.Process.Signal(unix.SIGTERM) // it may have ended
	select {
	case <-p.exited:
	case <-time.After(30 * time.Second):
		t.Fatalf("it does not end: %s", p.log.String())
	}
	if !p.cmd.ProcessState.Success() {
		t.Errorf("%v: %s", p.cmd.ProcessState, p.log.String())
	}
}
