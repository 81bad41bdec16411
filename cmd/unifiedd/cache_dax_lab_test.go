//go:build verbs && cgo

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/blocks"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

//lab:program selftests/unified-flow-test

// cacher is a daemon that serves a disk, and caches its blocks on persistent memory.
type cacher struct {
	*testing.T
	dir, dax, device, flowTest string

	daemon *exec.Cmd
	said   *bytes.Buffer
}

// cachedBytes are the bytes that clients read.
const cachedBytes = 2 << 20

// TestCacheOnDAX: a daemon that ended in good order leaves what it has cached to the next one, which reads none of it from
// the disk. Of a daemon that was killed, and of a disk that was written in between, nothing is used. Clients verify every
// block.
func TestCacheOnDAX(t *testing.T) {
	labenv.Guest(t)
	c := &cacher{T: t, dir: t.TempDir(), dax: labenv.DAX(t), flowTest: labenv.Program(t, "unified-flow-test")}
	testenv.HugePages(t, 32<<20)
	c.device = labenv.SoftRoCE(t, capturedBy.Card, capturedBy.Here+"/24")
	t.Cleanup(func() { labenv.RDMAAtRest(t, c.device) })
	c.fill(4)
	if labenv.Kernel(t) == labenv.Linux61 {
		c.uncounted()
		return
	}

	c.launch()
	if b := c.blocks(); b.Kept != 0 {
		t.Errorf("a new index has %d buffers", b.Kept)
	}
	c.read(4)
	had := c.blocks().Frames.Reads
	c.terminate()

	c.launch()
	c.read(4)
	if b := c.blocks(); had == 0 || b.Kept != had || b.Frames.Reads+b.Extents.Reads != 0 {
		t.Errorf("%d buffers were cached, %d are used again, and %d were read; not used: %v", had, b.Kept, b.Frames.Reads, b.Discarded)
	}
	c.kill()

	c.launch()
	c.none(blocks.Unclean, 1)
	c.read(4)
	c.terminate()

	c.fill(5)
	c.launch()
	c.none(blocks.Changed, had)
	c.read(5)
	c.terminate()
}

// none fails if something that was cached is used, or the reason is another one.
func (c *cacher) none(why blocks.Discard, n uint64) {
	c.Helper()
	if b := c.blocks(); b.Kept != 0 || b.Discarded[string(why)] != n {
		c.Errorf("%d buffers are used again; not used: %v; want %d because of %s", b.Kept, b.Discarded, n, why)
	}
}

// fill writes the disk.
func (c *cacher) fill(seed int) {
	c.Helper()
	if out, err := exec.Command("blkdiscard", "-f", labenv.Disk).CombinedOutput(); err != nil {
		c.Fatalf("discard %s: %v\n%s", labenv.Disk, err, out)
	}
	c.test("make", "-file", labenv.Disk, "-size", strconv.Itoa(cachedBytes), "-seed", strconv.Itoa(seed))
}

// read reads blocks, always the same ones, and verifies them.
func (c *cacher) read(seed int) {
	c.Helper()
	c.test("read", "-from", capturedBy.Here+":7472", "-flow", "blocks", "-seed", strconv.Itoa(seed), "-size", "4096", "-count", "300", "-depth", "4", "-within", strconv.Itoa(cachedBytes),
		"-device", c.device, "-memory", strconv.Itoa(24<<20), "-receive-ring", "1024", "-reserve")
}

func (c *cacher) test(args ...string) {
	c.Helper()
	if out, err := exec.Command(c.flowTest, args...).CombinedOutput(); err != nil {
		c.Fatalf("unified-flow-test %q: %v\n%s", args, err, out)
	}
}

func (c *cacher) socket() string { return filepath.Join(c.dir, "control.sock") }

// uncounted checks that the daemon refuses a disk whose writes nobody counts: that of Linux 6.1 with native multipath,
// also after an administrator has switched its counts on.
func (c *cacher) uncounted() {
	c.Helper()
	for _, counts := range []string{"0", "1"} {
		write(c.T, filepath.Join("/sys/block", filepath.Base(labenv.Disk), "queue/iostats"), []byte(counts))
		out, err := exec.Command(testenv.Tool(c, "unifiedd"), "run", "-c", c.configure()).CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("a cache with an index needs that")) {
			c.Errorf("with iostats %s: %v\n%s", counts, err, out)
		}
	}
}

// configure writes the configuration.
func (c *cacher) configure() (file string) {
	c.Helper()
	file = filepath.Join(c.dir, "unifiedd.yaml")
	write(c.T, file, fmt.Appendf(nil, `
control: {socket: %s}
region: {size: 128MiB, device: %s}
flows:
  - name: blocks
    from: {device: %s}
    to: {rdma: %s, listen: "%s:7472", clients: 2, window: 8, transfer: 64KiB, cache: 8MiB, cache_index: %s}
`, c.socket(), c.dax, labenv.Disk, c.device, capturedBy.Here, filepath.Join(c.dir, "index")))
	return file
}

// launch starts the daemon, once nothing has the memory, and waits until it serves.
func (c *cacher) launch() {
	c.Helper()
	c.free()
	file := c.configure()
	c.said = new(bytes.Buffer)
	said := c.said
	c.daemon = exec.Command(testenv.Tool(c, "unifiedd"), "run", "-c", file)
	c.daemon.SysProcAttr, c.daemon.Stderr = &syscall.SysProcAttr{Setpgid: true}, said
	if err := c.daemon.Start(); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		c.kill()
		if c.Failed() {
			c.Logf("a daemon said:\n%s", said)
		}
	})
	testenv.Wait(c, testenv.Within(30*time.Second), "the flow to run", func() bool {
		if zombie(c.daemon.Process.Pid) {
			c.Fatal("the daemon has ended")
		}
		f, err := c.status()
		return err == nil && f.State == status.Running
	})
}

// zombie reports whether a process has ended and was not waited for: proc_pid_stat(5).
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(text, []byte(") Z "))
}

// free waits until no process has the persistent memory: a killed one has it until the kernel has closed its files.
func (c *cacher) free() {
	c.Helper()
	f, err := os.OpenFile(c.dax, os.O_RDWR, 0)
	if err != nil {
		c.Fatal(err)
	}
	defer f.Close()
	testenv.Wait(c, testenv.Within(30*time.Second), "the persistent memory to be free", func() bool {
		return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
	})
}

// kill kills the daemon, if it runs: first the process that works, which would end in good order if the started one, its
// parent, were gone.
func (c *cacher) kill() {
	if c.daemon == nil {
		return
	}
	pid := c.daemon.Process.Pid
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				_ = syscall.Kill(child, syscall.SIGKILL) // it may have ended
			}
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	_ = c.daemon.Wait()
	c.daemon = nil
}

// terminate asks the daemon to end. It must end without an error.
func (c *cacher) terminate() {
	c.Helper()
	terminateDaemon(c, c.daemon, c.said)
	c.daemon = nil
}

// blocks returns the status of the block server.
func (c *cacher) blocks() *status.Blocks {
	c.Helper()
	f, err := c.status()
	if err != nil {
		c.Fatal(err)
	}
	return f.Blocks
}

func (c *cacher) status() (*status.Flow, error) {
	var s status.Daemon
	b, err := control.Status(c.Context(), c.socket())
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err == nil && (len(s.Flows) != 1 || s.Flows[0].Blocks == nil) {
		err = errors.New("the daemon has another flow")
	}
	if err != nil {
		return nil, err
	}
	return &s.Flows[0], nil
}
