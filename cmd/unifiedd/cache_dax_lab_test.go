//go:build verbs && cgo

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/blocks"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/umem"
)

//lab:program selftests/unified-flow-test

// cacher is a daemon that serves a disk, and caches its blocks on persistent memory.
type cacher struct {
	*testing.T
	dir, dax, device, flowTest string

	daemon *daemon.Daemon
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
	c.daemon.Terminate(t)

	c.launch()
	c.read(4)
	b := c.blocks()
	again := b.Kept
	if umem.Invariants { // frames in the pool have other bytes
		again += b.Discarded[string(blocks.BadTag)]
	}
	if had == 0 || again != had || b.Frames.Reads+b.Extents.Reads != had-b.Kept {
		t.Errorf("%d buffers were cached, %d are used again, and %d were read; not used: %v", had, b.Kept, b.Frames.Reads, b.Discarded)
	}
	c.daemon.Kill()

	c.launch()
	c.none(blocks.Unclean, 1)
	c.read(4)
	c.daemon.Terminate(t)

	c.fill(5)
	c.launch()
	c.none(blocks.Changed, had)
	c.read(5)
	c.daemon.Terminate(t)
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

// uncounted checks that the daemon refuses a disk whose writes nobody counts: that of Linux 6.1 with native multipath,
// also after an administrator has switched its counts on.
func (c *cacher) uncounted() {
	c.Helper()
	file := filepath.Join(c.dir, "unifiedd.yaml")
	write(c.T, file, []byte("control: {socket: "+c.dir+"/control.sock}\n"+c.text()))
	for _, counts := range []string{"0", "1"} {
		write(c.T, filepath.Join("/sys/block", filepath.Base(labenv.Disk), "queue/iostats"), []byte(counts))
		out, err := exec.Command(testenv.Tool(c, "unifiedd"), "run", "-c", file).CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("a cache with an index needs that")) {
			c.Errorf("with iostats %s: %v\n%s", counts, err, out)
		}
	}
}

// text is the configuration.
func (c *cacher) text() string {
	return fmt.Sprintf(`
region: {size: 128MiB, device: %s}
flows:
  - name: blocks
    from: {device: %s}
    to: {rdma: %s, listen: "%s:7472", clients: 2, window: 8, transfer: 64KiB, cache: 8MiB, cache_index: %s}
`, c.dax, labenv.Disk, c.device, capturedBy.Here, filepath.Join(c.dir, "index"))
}

// launch starts the daemon, once nothing has the memory, and waits until it serves.
func (c *cacher) launch() {
	c.Helper()
	c.free()
	c.daemon = launchHosts(c.T, c.dir, c.text())
}

// free waits until no process has the persistent memory: a killed one has it until the kernel has closed its files.
func (c *cacher) free() {
	c.Helper()
	f, err := os.OpenFile(c.dax, os.O_RDWR, 0)
	testenv.Must(c, err)
	defer f.Close()
	testenv.Wait(c, testenv.Within(30*time.Second), "the persistent memory to be free", func() bool {
		return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
	})
}

// blocks returns the status of the block server.
func (c *cacher) blocks() *status.Blocks {
	c.Helper()
	s, err := c.daemon.Status()
	testenv.Must(c, err)
	return s.Flows[0].Blocks
}
