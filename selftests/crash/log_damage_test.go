package crash

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// damageRig is a log in its own directory.
type damageRig struct {
	*logKiller
	log string // path prefix of its files
}

func newDamageRig(t *testing.T) *damageRig {
	testenv.Root(t)
	testenv.HugePages(t, 66<<20+clientRegion)
	k := &logKiller{t: t, Pair: testenv.NewPair(t, testenv.PairOptions{}), dir: testenv.DiskDir(t), random: rand.New(rand.NewPCG(1, 2))}
	dir := filepath.Join(k.dir, "log")
	testenv.Must(t, os.Mkdir(dir, 0o700))
	return &damageRig{k, filepath.Join(dir, "wal")}
}

func (r *damageRig) settings() string {
	return fmt.Sprintf(`
region: {size: 64MiB, extent: 512KiB, extents: 16}
flows:
  - name: wal
    from: {rdma: "roce:%s", listen: "%s:7471", clients: 2, window: 64}
    to: {file: %s, acknowledge: durable, segment: {size: 2MiB}}
`, r.B.Ifname, r.B.IP, r.log)
}

// newest returns the newest file of the log.
func (r *damageRig) newest() string {
	r.t.Helper()
	all, err := filepath.Glob(r.log + "-*.pcapng")
	if err != nil || len(all) == 0 {
		r.t.Fatalf("no segments: %v", err)
	}
	return all[len(all)-1]
}

// unifiedd runs the program and returns its output.
func (r *damageRig) unifiedd(args ...string) (string, error) {
	out, err := exec.Command(program, args...).CombinedOutput()
	return string(out), err
}

// says runs the program. It must succeed if good, fail otherwise, and print all texts.
func (r *damageRig) says(good bool, args []string, texts ...string) {
	r.t.Helper()
	out, err := r.unifiedd(args...)
	if (err == nil) != good {
		r.t.Errorf("%v: %v\n%s", args, err, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			r.t.Errorf("%v does not say %q:\n%s", args, text, out)
		}
	}
}

// TestLogDamaged: the daemon refuses a log whose newest segment is damaged, and verify fails. After
// a repair the log continues after the last acknowledged message. All messages were acknowledged
// before the daemon was killed.
func TestLogDamaged(t *testing.T) {
	testenv.Long(t, "flows/journal tests damaged segments")
	r := newDamageRig(t)
	const count = 3000
	begin := uint64(1)
	for _, c := range []struct {
		name string
		harm func(path string) error
		lost bool
	}{
		{"a bit of the head", flipHead, false},
		{"cut to nothing", func(path string) error { return os.Truncate(path, 0) }, true},
		{"gone", os.Remove, true},
	} {
		d := launch(t, &r.B, r.dir, r.settings())
		d.Running(t)
		if l := r.logKiller.log(d); l.First != begin {
			t.Fatalf("%s: the log begins at position %d, not %d", c.name, l.First, begin)
		}
		r.flowTest("append", "-device", "roce:"+r.A.Ifname, "-memory", fmt.Sprint(clientRegion), "-receive-ring", "512",
			"-to", r.B.IP.String()+":7471", "-flow", "wal", "-count", fmt.Sprint(count), "-timeout", "2m").Await(t, clientLimit)
		acknowledged := r.logKiller.log(d).Acknowledged
		if acknowledged < begin+count-1 {
			t.Fatalf("%s: position %d is acknowledged", c.name, acknowledged)
		}
		d.Kill()
		testenv.Must(t, c.harm(r.newest()))
		r.says(false, []string{"log", "verify", r.log}, "damaged: segment", "log repair")
		refused(t, &r.B, r.dir, r.settings(), "is damaged: segment", "unifiedd log repair "+r.log)
		r.says(false, []string{"log", "repair", r.log}, "damaged: segment", "continues at position", "nothing was changed", "--yes")
		r.says(false, []string{"log", "verify", r.log}, "damaged: segment")
		r.says(true, []string{"log", "repair", "--yes", r.log}, "continues at position", "done")
		r.says(!c.lost, []string{"log", "verify", r.log}, "records")
		d = launch(t, &r.B, r.dir, r.settings())
		d.Running(t)
		begin = r.logKiller.log(d).First
		if begin <= acknowledged || !c.lost && begin != acknowledged+1 {
			t.Errorf("%s: the log continues at position %d, and position %d was acknowledged", c.name, begin, acknowledged)
		}
		d.Terminate(t)
		if c.lost {
			testenv.Must(t, os.RemoveAll(filepath.Dir(r.log)))
			testenv.Must(t, os.Mkdir(filepath.Dir(r.log), 0o700))
			begin = 1
		}
	}
}

// TestLogFilesMoved: verify and the daemon refuse a log whose files were exchanged, copied to other
// names, or replaced by something that is not a file.
func TestLogFilesMoved(t *testing.T) {
	testenv.Long(t, "flows/journal tests files that were exchanged")
	r := newDamageRig(t)
	text := strings.Replace(r.settings(), "segment: {size: 2MiB}", "segment: {size: 1MiB}", 1)
	d := launch(t, &r.B, r.dir, text)
	d.Running(t)
	r.flowTest("append", "-device", "roce:"+r.A.Ifname, "-memory", fmt.Sprint(clientRegion), "-receive-ring", "512",
		"-to", r.B.IP.String()+":7471", "-flow", "wal", "-count", "3000", "-timeout", "2m").Await(t, clientLimit)
	d.Terminate(t)
	dir, whole := filepath.Dir(r.log), filepath.Join(r.dir, "whole")
	if out, err := exec.Command("cp", "-a", dir, whole).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	segments, err := filepath.Glob(r.log + "-*.pcapng")
	if err != nil || len(segments) < 3 {
		t.Fatalf("segments: %v, %v", segments, err)
	}
	manifest := r.log + ".manifest"
	for _, c := range []struct{ name, command, says string }{
		{"two exchanged", "mv $0 x; mv $1 $0; mv x $1", "was a file renamed or copied?"},
		{"the oldest copied to the end", "cp $0 " + r.log + "-20991231T000000Z-000099.pcapng", "was a file renamed or copied?"},
		{"the newest a link", "mv $2 x; ln -s x $2", "it is not there"},
		{"the manifest a pipe", "rm " + manifest + "; mkfifo " + manifest, "is no file"},
		{"the manifest a directory", "rm " + manifest + "; mkdir " + manifest, "is no file"},
		{"the manifest empty", ": > " + manifest, "no copy of the manifest is intact: all are empty"},
	} {
		shell := exec.Command("sh", append([]string{"-ec", "rm -r " + dir + "; cp -a " + whole + " " + dir + "; cd " + dir + "; " + c.command}, segments...)...)
		if out, err := shell.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c.name, err, out)
		}
		t.Log(c.name)
		r.says(false, []string{"log", "verify", r.log}, c.says)
		refused(t, &r.B, r.dir, text, "start flow wal", c.says)
	}
}

// flipHead changes a bit of the manifest mark in the header of a segment.
func flipHead(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[bytes.Index(b, []byte("UFDM"))+20] ^= 1
	return os.WriteFile(path, b, 0o600)
}

// TestNameNotFlushed: if the daemon cannot flush the names in a directory, it does not acknowledge later
// messages as durable, and the flow fails. Here the daemon loses read permission for the directory.
func TestNameNotFlushed(t *testing.T) {
	r := newDamageRig(t)
	d := launch(t, &r.B, r.dir, r.settings())
	d.Running(t)
	c := r.append(20000)
	d.Until(t, "records to be acknowledged", func(s *status.Daemon) bool { return s.Flows[0].Log.Acknowledged > 0 })
	dir := filepath.Dir(r.log)
	testenv.Must(t, os.Chmod(dir, 0o300))
	s := d.Until(t, "the flow to fail", func(s *status.Daemon) bool { return s.Flows[0].State == status.Failed })
	if !strings.Contains(s.Flows[0].Error, "flush the name of segment") || !strings.Contains(s.Flows[0].Error, "permission denied") {
		t.Errorf("why: %q", s.Flows[0].Error)
	}
	testenv.Must(t, os.Chmod(dir, 0o700))
	_ = c.Process.Kill()
	testenv.Wait(t, 10*time.Second, "the client to end", c.Over)
	acknowledged := s.Flows[0].Log.Acknowledged
	d.Terminate(t)
	if acknowledged == 0 || acknowledged > 3000 {
		t.Errorf("position %d is acknowledged: a segment has some 1900 records", acknowledged)
	}
	again := launch(t, &r.B, r.dir, r.settings())
	again.Running(t)
	if first := r.logKiller.log(again).First; first <= acknowledged {
		t.Errorf("the log continues at position %d, and position %d was acknowledged", first, acknowledged)
	}
	again.Terminate(t)
}
