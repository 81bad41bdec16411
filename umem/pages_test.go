package umem

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// lockReservation keeps the tests of other packages from changing the number of
// huge pages: they hold testenv's lock while they do. The caller calls unlock.
func lockReservation(t *testing.T) (unlock func()) {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "unifiedd-testenv")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			return func() { f.Close() }
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}

// TestReserveIsExact reserves pages, on the machine and on node 0, and gives them
// back, twice, which is once.
func TestReserveIsExact(t *testing.T) {
	testenv.Root(t)
	for _, node := range []int{-1, 0} {
		reserveAndGiveBack(t, node)
	}
}

func reserveAndGiveBack(t *testing.T, node int) {
	t.Helper()
	defer lockReservation(t)()
	free, before := mustFree(t, node)
	giveBack, err := Reserve(Huge2M, node, (free+3)*hugePage-1)
	if err != nil {
		t.Fatal(err)
	}
	if _, total := mustFree(t, node); total < before || total > before+8 {
		t.Errorf("node %d: %d pages where 3 were added to %d", node, total, before)
	}
	for range 2 {
		if err := giveBack(); err != nil {
			t.Error(err)
		}
	}
	if _, total := mustFree(t, node); total != before {
		t.Errorf("node %d: %d pages remain of %d", node, total, before)
	}
}

func mustFree(t *testing.T, node int) (free, total uint64) {
	t.Helper()
	free, total, err := FreePages(Huge2M, node)
	if err != nil {
		t.Fatal(err)
	}
	return free, total
}

// TestReserveTooMuch asks for more than the machine has: nothing may remain.
func TestReserveTooMuch(t *testing.T) {
	testenv.Root(t)
	defer lockReservation(t)()
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	pages := 2 * info.Totalram * uint64(info.Unit) / (1 << 30)
	_, before, err := FreePages(Huge1G, -1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Reserve(Huge1G, -1, pages<<30)
	wantError(t, err, "1 GiB huge pages", "found memory for only", "reserve them at boot")
	if !errors.Is(err, unix.ENOMEM) {
		t.Errorf("%v is not ENOMEM", err)
	}
	if _, after, _ := FreePages(Huge1G, -1); after != before {
		t.Errorf("%d pages are reserved, %d were before", after, before)
	}
}

func TestReserveNothing(t *testing.T) {
	giveBack, err := Reserve(Huge2M, -1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := giveBack(); err != nil {
		t.Error(err)
	}
	_, err = Reserve(Ordinary, -1, 1)
	wantError(t, err, "ordinary pages are not reserved")
	_, err = Reserve(Huge2M, 999, 1)
	wantError(t, err, "count 2 MiB huge pages", "node999")
}

func TestPagesFor(t *testing.T) {
	for _, c := range []struct {
		bytes uint64
		pages PageSize
		want  uint64
	}{
		{0, Huge2M, 0}, {1, Huge2M, 1}, {2 << 20, Huge2M, 1}, {2<<20 + 1, Huge2M, 2},
		{5 << 30, Huge1G, 5}, {1<<64 - 1, Huge2M, 1 << 43},
	} {
		if got := pagesFor(c.bytes, c.pages); got != c.want {
			t.Errorf("%d bytes need %d %v, want %d", c.bytes, got, c.pages, c.want)
		}
	}
}

func TestPageSizes(t *testing.T) {
	for _, c := range []struct {
		pages PageSize
		bytes uint64
		name  string
	}{
		{Huge2M, 2 << 20, "2 MiB huge pages"},
		{Huge1G, 1 << 30, "1 GiB huge pages"},
		{Ordinary, uint64(os.Getpagesize()), "ordinary pages"},
	} {
		if c.pages.Bytes() != c.bytes || c.pages.String() != c.name {
			t.Errorf("%d is %d bytes, %q", c.pages, c.pages.Bytes(), c.pages)
		}
	}
}
