//go:build lab

package transfer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

//lab:program cmd/unifiedd

const (
	remoteAddress = "10.79.0.1"
	remotePort    = "4421"
	remoteNQN     = "nqn.2026-01.com.example:copies"
	hostID        = "4b1dbb4e-6f4b-4b0c-9a0c-2f1c8b6f0a07"
)

// TestAgainstCopy compares with cp to a file system on a disk that the kernel's target serves over NVMe over Fabrics, in the
// form that UNIFIEDD_BENCH names. The guest does not outlive the test, so the report goes to standard output, where make
// lab-bench reads it.
func TestAgainstCopy(t *testing.T) {
	testenv.Long(t, "make lab-bench measures")
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	testenv.HugePages(t, 96<<20)
	device := labenv.SoftRoCE(t, "virtio0", remoteAddress+"/24")
	c := newCopies(t, form, device)
	k := newContest(fmt.Sprintf("one file of %d MiB", c.size>>20), c.ours, c.theirs)
	if err := k.Rounds(t.Context(), form.Rounds); err != nil {
		t.Fatal(err)
	}
	r := bench.NewReport("copying a file over Soft-RoCE in the lab guest", "unifiedd send", "cp over NVMe-oF")
	r.Comparisons = k.Comparisons()
	r.Notes = []string{
		fmt.Sprintf("%d pairs of copies, in turn; %s form. Both ends are in the guest.", form.Rounds, form.Name),
		"Source and copies are on ext4 on one disk, and the source is not in the page cache. cp writes to a file system on the remote disk, which the kernel's target serves and the kernel's initiator has connected. Both copies are durable at the end.",
		"Processor time is that of the whole guest. Its processors and disk are emulated: only the ratios mean something."}
	if err := r.Print(os.Stdout, "lab-copy"); err != nil {
		t.Error(err)
	}
}

// copies are the source and the places of both ways.
type copies struct {
	device, unifiedd string
	source           string
	size             int64
	to               [2]string // directories of ours and of theirs
}

func newCopies(t *testing.T, form bench.Form, device string) *copies {
	t.Helper()
	c := &copies{device: device, unifiedd: labenv.Program(t, "unifiedd"), size: 160 << 20}
	if form == bench.Short {
		c.size = 16 << 20
	}
	const room = 256 << 20
	c.source = filepath.Join(labenv.Ext4(t, labenv.Map(t, room).Path), "source")
	c.to[0] = labenv.Ext4(t, labenv.Map(t, room).Path)
	labenv.ServeNVMe(t, labenv.Map(t, room).Path, remoteNQN, remoteAddress, remotePort)
	remoteDisk := labenv.ConnectNVMe(t, remoteNQN, remoteAddress, remotePort, hostID)
	c.to[1] = labenv.Ext4(t, remoteDisk)
	fill(t, c.source, c.size)
	c.receive(t)
	return c
}

// receive starts the receiver, and waits until it listens.
func (c *copies) receive(t *testing.T) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(c.unifiedd, "receive", "--rdma", c.device, "--senders", "1", "-Z", "root", c.to[0])
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := func() []byte { text, _ := os.ReadFile(log.Name()); return text }
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended; Wait says how
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("the receiver: %v\n%s", err, said())
		}
		log.Close()
	})
	testenv.Wait(t, testenv.Within(30*time.Second), "the receiver to listen", func() bool {
		if bytes.Contains(said(), []byte("unifiedd: ")) { // an error ends it
			t.Fatal("it has ended")
		}
		return bytes.Contains(said(), []byte("listening"))
	})
}

// ours copies by send.
func (c *copies) ours(ctx context.Context) (sample, error) {
	return c.copy(ctx, 0, c.unifiedd, "send", "--rdma", c.device, "-Z", "root", "-q", "--times", c.source, remoteAddress)
}

// theirs copies by cp, and flushes the copy.
func (c *copies) theirs(ctx context.Context) (sample, error) {
	return c.copy(ctx, 1, "sh", "-c", `cp --preserve=timestamps "$1" "$2" && sync "$2/source"`, "sh", c.source, c.to[1])
}

func (c *copies) copy(ctx context.Context, k int, name string, args ...string) (s sample, err error) {
	copied := filepath.Join(c.to[k], "source")
	_ = os.Remove(copied) // there is none at first
	if err := drop(c.source); err != nil {
		return s, err
	}
	before, err := bench.Busy()
	if err != nil {
		return s, err
	}
	out, used, err := bench.Run(ctx, -1, name, args...)
	if err != nil {
		return s, fmt.Errorf("%w: %s", err, out)
	}
	after, err := bench.Busy()
	if err != nil {
		return s, err
	}
	info, err := os.Stat(copied)
	if err == nil && info.Size() != c.size {
		err = fmt.Errorf("the copy has %d bytes", info.Size())
	}
	return sample{bytes: float64(c.size), wall: used.Wall, busy: after - before}, err
}
