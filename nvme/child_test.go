package nvme

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// Some tests need a separate process. It is the test binary, and this variable says what it does
// with the target after the colon.
const childVariable = "UNIFIEDD_NVME_TEST_CHILD"

func TestMain(m *testing.M) {
	task, path, _ := strings.Cut(os.Getenv(childVariable), ":")
	tasks := map[string]func(string) error{"write": childWrites, "inline": childInline}
	if tasks[task] == nil {
		os.Exit(m.Run())
	}
	if err := tasks[task](path); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// child is the command that runs a task in a child process.
func child(task, path string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), childVariable+"="+task+":"+path)
	return cmd
}

// childRegion is the region a child opens.
const childRegion = 4 << 20

// openChild opens a queue of the child, and takes 256 frames.
func openChild(path string, c Config) (*umem.Region, *Queue, uint32, []umem.Frame, error) {
	runtime.LockOSThread()
	region, err := umem.Open(umem.Config{Size: childRegion, Control: 2 << 20})
	if err != nil {
		return nil, nil, 0, nil, err
	}
	c.Worker, err = region.NewBook("child").NewHolder(umem.OwnerWorker, "child")
	if err != nil {
		return nil, nil, 0, nil, err
	}
	q, err := Open(c)
	if err != nil {
		return nil, nil, 0, nil, err
	}
	t, err := OpenTarget(TargetConfig{Path: path})
	if err != nil {
		return nil, nil, 0, nil, err
	}
	i, err := q.Add(t)
	fs := make([]umem.Frame, 256)
	c.Worker.Take(fs)
	return region, q, i, fs, err
}

// childWrites writes at full depth until it is killed.
func childWrites(path string) error {
	region, q, i, fs, err := openChild(path, Config{Depth: 256})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		for _, f := range fs {
			*region.Side(f) = umem.Side{Target: i, Block: rand.Uint64N(256) * 4096}
		}
		q.Send(fs)
		if err := q.Wait(-1); err != nil {
			return err
		}
		fs = fs[:q.Reap(fs[:cap(fs)])]
	}
}

// TestKilled: soon after a process with reads and writes in flight is killed, its claim on the
// device, its memory and its rings are gone.
func TestKilled(t *testing.T) {
	testenv.HugePages(t, childRegion+2<<20)
	for _, path := range []string{testenv.Zram(t, 1<<20), testenv.Loop(t, testenv.DiskFile(t, 1<<20), 0)} {
		for range 5 {
			cmd := child("write", path)
			out, err := cmd.StdoutPipe()
			testenv.Must(t, err)
			testenv.Must(t, cmd.Start())
			line, err := bufio.NewReader(out).ReadString('\n')
			time.Sleep(rand.N(20 * time.Millisecond))
			cmd.Process.Kill()
			cmd.Wait()
			if line != "ready\n" {
				t.Fatalf("the child says %q, %v", line, err)
			}
			testenv.Wait(t, 5*time.Second, "the device to be free again", func() bool {
				to, err := OpenTarget(TargetConfig{Path: path})
				if err != nil && !errors.Is(err, ErrDeviceInUse) {
					t.Fatal(err)
				}
				return err == nil && to.Close() == nil
			})
		}
	}
}

// childInline writes and reads pieces of whole pages, single and gathered. It prints how many
// kernel threads that needed. Then it flushes and prints the number again.
func childInline(path string) error {
	region, q, i, fs, err := openChild(path, Config{Depth: 16, Frames: 256})
	if err != nil {
		return err
	}
	for _, pieces := range []int{1, 16} {
		for _, verbs := range [][2]func([]umem.Frame) int{{q.Send, q.Reap}, {q.Supply, q.Recv}} {
			if err := inlineRounds(region, q, i, fs, pieces, verbs[0], verbs[1]); err != nil {
				return err
			}
		}
	}
	before, err := kernelWorkers()
	if err != nil {
		return err
	}
	if err := flushNow(q, i); err != nil {
		return err
	}
	after, err := kernelWorkers()
	fmt.Println(before, after)
	return errors.Join(err, q.Close())
}

// flushNow flushes a target and waits until that completes. It repeats Wait, because signals end it
// early, such as Go's preemption on a busy machine.
func flushNow(q *Queue, target uint32) error {
	if err := q.Flush(target, 0); err != nil {
		return err
	}
	var done [1]FlushResult
	for q.Flushed(done[:]) == 0 {
		if err := q.Wait(-1); err != nil {
			return err
		}
	}
	return done[0].Err
}

// inlineRounds moves messages of that many pieces, at random places, many times.
func inlineRounds(region *umem.Region, q *Queue, target uint32, fs []umem.Frame, pieces int, in, out func([]umem.Frame) int) error {
	for range 20 {
		for k := range fs {
			fs[k].Options = umem.More
			if k%pieces == pieces-1 {
				fs[k].Options = 0
			}
			*region.Side(fs[k]) = umem.Side{Target: target, Block: rand.Uint64N(200) * 4096}
		}
		for sent, back := 0, 0; back < len(fs); {
			sent += in(fs[sent:])
			if err := q.Wait(-1); err != nil {
				return err
			}
			var dst [64]umem.Frame
			n := out(dst[:])
			for _, f := range dst[:n] {
				if f.Err() != nil {
					return f.Err()
				}
			}
			back += n
		}
	}
	return nil
}

// TestInline: on a file prepared with zeros, only flushes go to threads of the kernel.
func TestInline(t *testing.T) {
	testenv.HugePages(t, childRegion+2<<20)
	c := fileTarget(t, 2<<20)
	mustOpen(t, c)
	out, err := child("inline", c.Path).Output()
	var before, after int
	if _, e := fmt.Sscan(string(out), &before, &after); err != nil || e != nil {
		t.Fatalf("the child says %q, %v", out, err)
	}
	if before != 0 || after == 0 {
		t.Errorf("%d threads for reads and writes, want none; %d with a flush, want some", before, after)
	}
}

// kernelWorkers counts the threads that the kernel has started for io_uring in this process, of all its
// rings: io-wq's, named iou-wrk-… after the submitter. An operation goes to one if submitting it would
// block. A flush always does. A read or write does if blocks must be allocated, if the file system needs a
// thread for it, or if the device cannot refuse to wait (zram). Such an operation costs several times an
// inline one. Idle threads stay for a few seconds. See proc_pid_task(5).
func kernelWorkers() (int, error) {
	names, err := filepath.Glob("/proc/self/task/*/comm")
	if err != nil {
		return 0, err
	}
	n := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // the thread may have ended
			return 0, fmt.Errorf("count the kernel's threads: %w", err)
		}
		if strings.HasPrefix(string(text), "iou-wrk-") {
			n++
		}
	}
	return n, nil
}
