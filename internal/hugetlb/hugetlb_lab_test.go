package hugetlb_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/hugetlb"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// These tests count all huge pages of the machine, which other programs change. In the lab guest there are none.

// TestGiveBack: GiveBack removes the added pages, and a second call does nothing.
func TestGiveBack(t *testing.T) {
	labenv.Guest(t)
	place := ownPlace(t)
	_, before := count(t)
	h, err := added(4)
	testenv.Must(t, err)
	n, noted := h.Added(), len(notes(place))
	_, during := count(t)
	for range 2 {
		testenv.Check(t, h.GiveBack())
	}
	if _, after := count(t); during != before+n || n < 4 || after != before || noted != 1 || len(notes(place)) != 0 {
		t.Errorf("%d pages, then %d with %d added and %d noted, and %d remain, %v", before, during, n, noted, after, notes(place))
	}
}

// TestBesideSurplus: the count is right after pages are added and given back while earlier pages,
// already given back, are still mapped. The kernel counts those as surplus. If they were included
// in a count that is written back, they would stay forever.
func TestBesideSurplus(t *testing.T) {
	labenv.Guest(t)
	ownPlace(t)
	for _, early := range []bool{false, true} {
		if before, after := besideSurplus(t, early); before != after {
			t.Errorf("early %v: of %d pages %d remain", early, before, after)
		}
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
	testenv.Must(t, err)
	var second *hugetlb.Held
	add := func() {
		if second, err = added(3); err != nil {
			t.Error(err)
		}
	}
	if early {
		add()
	}
	testenv.Check(t, cancel(first))
	if !early {
		add()
	}
	last := []func() error{func() error { return unix.Munmap(b) }, func() error { return cancel(second) }}
	if early {
		slices.Reverse(last)
	}
	testenv.Check(t, errors.Join(last[0](), last[1]()))
	_, after = count(t)
	return before, after
}

// TestKilled: Sweep takes back the pages of a killed process.
func TestKilled(t *testing.T) {
	labenv.Guest(t)
	place := ownPlace(t)
	before, during := killed(t, place)
	testenv.Must(t, hugetlb.Sweep())
	if _, after := count(t); during < before+4 || after != before || len(notes(place)) != 0 {
		t.Errorf("%d pages, %d after the kill, and %d remain, %v", before, during, after, notes(place))
	}
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
