package hugetlb_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// sometime tries a few times, since other processes may change the reservation in between.
func sometime(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for range 10 {
		if err = try(); err == nil {
			return
		}
	}
	t.Error(err)
}

// TestGiveBack: GiveBack removes the added pages, and a second call does nothing.
func TestGiveBack(t *testing.T) {
	place := ownPlace(t)
	sometime(t, func() error {
		_, before := count(t)
		h, err := added(4)
		testenv.Must(t, err)
		n, noted := h.Added(), len(notes(place))
		_, during := count(t)
		for range 2 {
			if err := h.GiveBack(); err != nil {
				t.Error(err)
			}
		}
		if _, after := count(t); during != before+n || n < 4 || after != before || noted != 1 || len(notes(place)) != 0 {
			return fmt.Errorf("%d pages, then %d with %d added and %d noted, and %d remain, %v", before, during, n, noted, after, notes(place))
		}
		return nil
	})
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

// TestBesideSurplus: the count is right after pages are added and given back while earlier pages,
// already given back, are still mapped. The kernel counts those as surplus. If they were included
// in a count that is written back, they would stay forever.
func TestBesideSurplus(t *testing.T) {
	ownPlace(t)
	for _, early := range []bool{false, true} {
		sometime(t, func() error {
			before, after := besideSurplus(t, early)
			if before != after {
				return fmt.Errorf("early %v: of %d pages %d remain", early, before, after)
			}
			return nil
		})
	}
}

// besideSurplus adds pages a second time, before or after it gives back a first set that is mapped.
// If early, it gives back the second set while the first is still mapped, else afterwards.
func besideSurplus(t *testing.T, early bool) (before, after uint64) {
	t.Helper()
	free, before := count(t)
	first, err := added(4)
	testenv.Must(t, err)
	b, err := unix.Mmap(-1, 0, int(free+4)<<21, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_POPULATE)
	if err != nil { // another took some
		_ = cancel(first)
		return 0, 1
	}
	var second *hugetlb.Held
	add := func() {
		if second, err = added(3); err != nil {
			t.Error(err)
		}
	}
	if early {
		add()
	}
	if err := cancel(first); err != nil {
		t.Error(err)
	}
	if !early {
		add()
	}
	last := []func() error{func() error { return unix.Munmap(b) }, func() error { return cancel(second) }}
	if early {
		slices.Reverse(last)
	}
	if err := errors.Join(last[0](), last[1]()); err != nil {
		t.Error(err)
	}
	_, after = count(t)
	return before, after
}

// TestKilled: Sweep takes back the pages of a killed process.
func TestKilled(t *testing.T) {
	place := ownPlace(t)
	sometime(t, func() error {
		before, during := killed(t, place)
		testenv.Must(t, hugetlb.Sweep())
		if _, after := count(t); during < before+4 || after != before || len(notes(place)) != 0 {
			return fmt.Errorf("%d pages, %d after the kill, and %d remain, %v", before, during, after, notes(place))
		}
		return nil
	})
}

// killed runs a process that adds pages and is killed, and counts pages before and afterwards.
func killed(t *testing.T, place string) (before, after uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holder+"=1", where+"="+place)
	out, err := cmd.StdoutPipe()
	testenv.Must(t, err)
	testenv.Must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	var n uint64
	if _, e := fmt.Sscan(line, &before, &n); err != nil || e != nil || !strings.Contains(line, "<nil>") {
		t.Errorf("%q: %v, %v", line, err, e)
	}
	if err := hugetlb.Sweep(); err != nil || len(notes(place)) != 1 {
		t.Errorf("while its process lives, the note is swept: %v, %v", err, notes(place))
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	_, after = count(t)
	return before, after
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
