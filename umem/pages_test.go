package umem

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestReserveIsExact reserves pages, on the machine and on node 0, and gives them
// back, twice, which is once.
func TestReserveIsExact(t *testing.T) {
	testenv.Root(t)
	for _, node := range []int{-1, 0} {
		reserveAndGiveBack(t, node)
	}
}

// reserveAndGiveBack tries a few times: others may change the reservation in
// between, but not each time.
func reserveAndGiveBack(t *testing.T, node int) {
	t.Helper()
	var before, during, after uint64
	for range 5 {
		before, during, after = reserveThree(t, node)
		if during > before && during <= before+8 && after == before {
			return
		}
	}
	t.Errorf("node %d: of %d pages and 3 there were %d, and %d remain", node, before, during, after)
}

func reserveThree(t *testing.T, node int) (before, during, after uint64) {
	t.Helper()
	free, before := mustFree(t, node)
	giveBack, err := Reserve(Huge2M, node, (free+3)*hugePage-1)
	if err != nil {
		t.Fatal(err)
	}
	_, during = mustFree(t, node)
	for range 2 {
		if err := giveBack(); err != nil {
			t.Error(err)
		}
	}
	_, after = mustFree(t, node)
	return before, during, after
}

// TestReserveBesideSurplus reserves and gives back while pages that were given back
// before are still mapped. The kernel counts those on as surplus, and a count written
// back with them in it would keep them for good.
func TestReserveBesideSurplus(t *testing.T) {
	testenv.Root(t)
	for _, early := range []bool{false, true} {
		var before, after uint64
		for range 5 { // others may change the reservation in between, but not each time
			if before, after = reserveBesideSurplus(t, early); before == after {
				break
			}
		}
		if before != after {
			t.Errorf("reserved early %v: of %d pages %d remain", early, before, after)
		}
	}
}

// reserveBesideSurplus makes a second reservation, before or after a first one is
// given back whose pages are mapped. Made early, it is given back while they still
// are, else afterwards.
func reserveBesideSurplus(t *testing.T, early bool) (before, after uint64) {
	t.Helper()
	free, before := mustFree(t, -1)
	first := mustReserve(t, free+4)
	b, err := mapPages("surplus", (free+4)*hugePage, Huge2M, nil)
	if err != nil {
		t.Fatal(errors.Join(err, first()))
	}
	var second func() error
	if early {
		second = mustReserve(t, 3)
	}
	if err := first(); err != nil {
		t.Error(err)
	}
	if !early {
		second = mustReserve(t, 3)
	}
	last := []func() error{func() error { return unix.Munmap(b) }, second}
	if early {
		slices.Reverse(last)
	}
	if err := errors.Join(last[0](), last[1]()); err != nil {
		t.Error(err)
	}
	_, after = mustFree(t, -1)
	return before, after
}

// TestRaiseGivenBackByAnother gives back what a process had noted that was killed right
// after the kernel added the pages, or right before.
func TestRaiseGivenBackByAnother(t *testing.T) {
	testenv.Root(t)
	for _, made := range []bool{false, true} {
		var before, during, after uint64
		for range 5 { // others may change the reservation in between, but not each time
			before, during, after = raiseAndForget(t, made)
			if during >= before+3 && after == before {
				break
			}
		}
		if during < before+3 || after != before {
			t.Errorf("made %v: of %d pages and 3 there were %d, and %d remain", made, before, during, after)
		}
	}
	_, before := mustFree(t, -1)
	if err := (Raise{Pages: Huge2M, Node: -1, From: before + 1<<20, By: 3}).GiveBack(); err != nil {
		t.Error(err)
	}
}

// raiseAndForget reserves and gives back by what was noted.
func raiseAndForget(t *testing.T, made bool) (before, during, after uint64) {
	t.Helper()
	free, before := mustFree(t, -1)
	var noted Raise
	_, err := ReserveNoted(Huge2M, -1, (free+3)*hugePage, func(r Raise) error {
		if r.Made == made {
			noted = r
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, during = mustFree(t, -1)
	if err := noted.GiveBack(); err != nil {
		t.Error(err)
	}
	_, after = mustFree(t, -1)
	return before, during, after
}

// TestReserveUnnoted: what cannot be noted is not made.
func TestReserveUnnoted(t *testing.T) {
	testenv.Root(t)
	for _, made := range []bool{false, true} {
		var before, after uint64
		for range 5 {
			var free uint64
			free, before = mustFree(t, -1)
			_, err := ReserveNoted(Huge2M, -1, (free+3)*hugePage, func(r Raise) error {
				if r.Made == made {
					return unix.EROFS
				}
				return nil
			})
			if !errors.Is(err, unix.EROFS) {
				t.Fatalf("reserve: %v", err)
			}
			if _, after = mustFree(t, -1); before == after {
				break
			}
		}
		if before != after {
			t.Errorf("made %v: of %d pages %d remain", made, before, after)
		}
	}
}

func mustReserve(t *testing.T, pages uint64) (giveBack func() error) {
	t.Helper()
	giveBack, err := Reserve(Huge2M, -1, pages*hugePage)
	if err != nil {
		t.Fatal(err)
	}
	return giveBack
}

// TestReserveWaits: two processes that reserve at once would spoil each other's
// count.
func TestReserveWaits(t *testing.T) {
	testenv.Root(t)
	unlock, err := lockPages()
	if err != nil {
		t.Fatal(err)
	}
	free, _ := mustFree(t, -1)
	reserved := make(chan error)
	go func() {
		giveBack, err := Reserve(Huge2M, -1, (free+64)*hugePage)
		reserved <- err
		if err == nil {
			err = giveBack()
		}
		reserved <- err
	}()
	select {
	case err := <-reserved:
		t.Fatalf("it did not wait for the other: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	unlock()
	for range 2 {
		if err := <-reserved; err != nil {
			t.Error(err)
		}
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
