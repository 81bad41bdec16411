package hugetlb_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/hugetlb"
	"github.com/unifiedd/unifiedd/internal/record"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// holder is set in the environment of a process that adds four pages, reports that, and waits until
// it is killed. where is its place for notes.
const holder, where = "HUGETLB_TEST_HOLDER", "HUGETLB_TEST_PLACE"

func TestMain(m *testing.M) {
	if os.Getenv(holder) == "" {
		os.Exit(m.Run())
	}
	hugetlb.SetPlace(os.Getenv(where))
	_, before, _ := hugetlb.Free(hugetlb.MiB2, -1)
	h, err := added(4)
	fmt.Println(before, h.Added(), err)
	select {}
}

// added adds free pages.
func added(pages uint64) (*hugetlb.Held, error) {
	unlock, err := hugetlb.Lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	h := &hugetlb.Held{}
	return h, h.Add(hugetlb.MiB2, -1, pages)
}

// cancel gives the pages back at once.
func cancel(h *hugetlb.Held) error {
	unlock, err := hugetlb.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	return h.Cancel()
}

func count(t *testing.T) (free, total uint64) {
	t.Helper()
	free, total, err := hugetlb.Free(hugetlb.MiB2, -1)
	testenv.Must(t, err)
	return free, total
}

// ownPlace sets a separate place for notes, and returns it.
func ownPlace(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	place := filepath.Join(t.TempDir(), "pages-")
	t.Cleanup(hugetlb.SetPlace(place))
	return place
}

func notes(place string) []string {
	found, _ := filepath.Glob(place + "*")
	return found
}

// TestAddUnnoted: Add adds no pages if it cannot write the note.
func TestAddUnnoted(t *testing.T) {
	testenv.Root(t)
	for _, made := range []bool{false, true} {
		unlock, err := hugetlb.Lock()
		testenv.Must(t, err)
		before, _, err1 := hugetlb.Reservation(hugetlb.MiB2, -1)
		r := hugetlb.Raise{Size: hugetlb.MiB2, Node: -1}
		err = r.Add(3, func(r hugetlb.Raise) error {
			if r.Made == made {
				return unix.EROFS
			}
			return nil
		})
		after, _, err2 := hugetlb.Reservation(hugetlb.MiB2, -1)
		unlock()
		if !errors.Is(err, unix.EROFS) || errors.Join(err1, err2) != nil || before != after {
			t.Errorf("made %v: %v; %d pages were reserved, and %d are (%v, %v)", made, err, before, after, err1, err2)
		}
	}
}

// TestKilledBetween: Sweep takes back pages that were noted and only partly added, as far as they
// exist.
func TestKilledBetween(t *testing.T) {
	place := ownPlace(t)
	_, before := count(t)
	r, err := record.New(place)
	testenv.Must(t, err)
	testenv.Must(t, r.Put([]hugetlb.Raise{{Size: hugetlb.MiB2, Node: -1, From: before + 1<<20, By: 7}}))
	r.Close()
	if err := hugetlb.Sweep(); err != nil || len(notes(place)) != 0 {
		t.Errorf("%v, %v", err, notes(place))
	}
	if _, after := count(t); after+7 <= before {
		t.Errorf("%d pages, and %d after a raise that was never made was taken back", before, after)
	}
}

// TestSweepForeign: Sweep names an invalid note in its error and changes nothing.
func TestSweepForeign(t *testing.T) {
	name := ownPlace(t) + "x"
	testenv.Must(t, os.WriteFile(name, []byte("nonsense"), 0o600))
	if err := hugetlb.Sweep(); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("sweep: %v", err)
	}
}

// TestLockOfTheMachine: the lock is the same in a network namespace with its own sysfs, as `ip
// netns exec` makes it, and the kernel releases it with the process.
func TestLockOfTheMachine(t *testing.T) {
	testenv.Root(t)
	const script = "mount -t sysfs sysfs /sys && flock -n /run/unifiedd-hugepages.lock true"
	other := func() error {
		cmd := exec.Command("sh", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
		return cmd.Run()
	}
	unlock, err := hugetlb.Lock()
	testenv.Must(t, err)
	if info, err := os.Stat("/run/unifiedd-hugepages.lock"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the lock: %v, %v; any user who can open it can keep every daemon from starting", info.Mode(), err)
	}
	var failed *exec.ExitError
	if err := other(); !errors.As(err, &failed) || failed.ExitCode() != 1 {
		t.Errorf("the lock is held, and flock says: %v", err)
	}
	unlock()
	testenv.Wait(t, 10*time.Second, "the lock to be free", func() bool { return other() == nil })
}

func TestPages(t *testing.T) {
	for _, c := range []struct {
		bytes uint64
		size  hugetlb.Size
		want  uint64
	}{
		{0, hugetlb.MiB2, 0}, {1, hugetlb.MiB2, 1}, {2 << 20, hugetlb.MiB2, 1}, {2<<20 + 1, hugetlb.MiB2, 2},
		{5 << 30, hugetlb.GiB1, 5}, {1<<64 - 1, hugetlb.MiB2, 1 << 43},
	} {
		if got := c.size.Pages(c.bytes); got != c.want {
			t.Errorf("%d bytes need %d %v, want %d", c.bytes, got, c.size, c.want)
		}
	}
}
