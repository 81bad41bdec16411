package testenv

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/hugetlb"
)

// hugePageSize is the size in bytes of the pages HugePages reserves.
const hugePageSize = 2 << 20

// HugePages reserves 2 MiB pages for at least that many bytes, in addition to existing
// reservations. The end of the test removes exactly as many. It adds pages even if free ones exist:
// those may belong to a test of another process that has not mapped them yet.
//
// Until the end of the test it adds more when fewer are free than this process and its children
// still have to map. That happens if another program takes pages, or lowers the kernel's counter.
// For a moment there may be too few; umem.Open waits that long.
//
// The end of the test fails if the pages are still in use after some seconds and no other process
// accounts for them: something still maps or pins them.
func HugePages(t testing.TB, bytes uint64) {
	t.Helper()
	Root(t)
	k := &keeper{size: hugetlb.MiB2, want: hugetlb.MiB2.Pages(bytes), stop: make(chan struct{})}
	if k.want == 0 {
		return
	}
	if err := k.open(); err != nil {
		t.Fatal(err)
	}
	if err := k.add(k.want); err != nil {
		t.Fatal(errors.Join(err, k.close()))
	}
	k.running.Go(k.watch)
	t.Cleanup(func() {
		t.Helper()
		close(k.stop)
		k.running.Wait()
		if err := errors.Join(k.err, k.giveBack(5*time.Second), k.close()); err != nil {
			t.Error(err)
		}
	})
}

// keeper keeps huge pages free for one test.
type keeper struct {
	size       hugetlb.Size
	want       uint64 // pages the test may use in all
	grown      uint64 // pages added so far
	free, resv *os.File
	status     *os.File // of this process
	buffer     [4096]byte
	stop       chan struct{}
	running    sync.WaitGroup
	err        error // of watch, valid once it has ended
}

// open opens the files that watch reads at each look. Tests count descriptors and allocations, so
// watch must not open them later.
func (k *keeper) open() (err error) {
	for name, f := range map[string]**os.File{
		k.size.Dir(-1) + "/free_hugepages": &k.free, k.size.Dir(-1) + "/resv_hugepages": &k.resv, "/proc/self/status": &k.status,
	} {
		if *f, err = os.Open(name); err != nil {
			return errors.Join(fmt.Errorf("count huge pages: %w", err), k.close())
		}
	}
	return nil
}

func (k *keeper) close() (err error) {
	for _, f := range []*os.File{k.free, k.resv, k.status} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// How often watch looks, and how long pages must be short before it adds some. The kernel promises
// pages to a mapping before the mapping is populated. During that time no process has them.
const (
	look       = 10 * time.Millisecond
	shortLimit = 200 * time.Millisecond
)

// watch adds pages when they are short.
func (k *keeper) watch() {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	var since time.Time // when pages became short; zero: they are not
	var promised uint64 // pages promised to mappings at the last look
	for {
		select {
		case <-k.stop:
			return
		case <-ticker.C:
		}
		before := promised
		promised = k.number(k.resv, "")
		switch {
		case k.short(0) == 0:
			since = time.Time{}
		case since.IsZero(), promised > 0 && promised != before: // populating a large mapping takes seconds
			since = time.Now()
		case time.Since(since) > shortLimit:
			since = time.Time{}
			if k.err = k.replace(); k.err != nil {
				return
			}
		}
	}
}

// replace adds the pages that are missing even if the children's are counted. To find the children
// allocates memory, so watch calls it only after shortLimit: tests of the hot path count the
// allocations of the whole process.
func (k *keeper) replace() error {
	n := k.short(k.usedBy(descendants(os.Getpid())))
	if n == 0 {
		return nil
	}
	if err := k.add(n); err != nil {
		return fmt.Errorf("replace huge pages that others took: %w", err)
	}
	return nil
}

// short returns how many pages are missing for what the test has not mapped yet. children is the
// number of pages that its children map. It allocates nothing.
func (k *keeper) short(children uint64) uint64 {
	free := k.number(k.free, "") - min(k.number(k.resv, ""), k.number(k.free, ""))
	used := k.number(k.status, hugetlbLine)<<10/uint64(k.size) + children
	return k.want - min(k.want, free+used)
}

// hugetlbLine begins the line of /proc/PID/status with the KiB of huge pages it maps.
const hugetlbLine = "HugetlbPages:"

// number reads the number after a word. It returns 0 if there is none. While a mapping goes away,
// the kernel's count of promised pages is negative for a moment, and printed without its sign.
func (k *keeper) number(f *os.File, behind string) (n uint64) {
	got, _ := f.ReadAt(k.buffer[:], 0)
	text := k.buffer[:got]
	i := 0
	if behind != "" {
		if i = index(text, behind); i < 0 {
			return 0
		}
		i += len(behind)
	}
	for ; i < len(text) && (text[i] == ' ' || text[i] == '\t'); i++ {
	}
	for ; i < len(text) && '0' <= text[i] && text[i] <= '9'; i++ {
		n = n*10 + uint64(text[i]-'0')
	}
	return uint64(max(0, int64(n)))
}

// index is strings.Index of bytes.
func index(text []byte, word string) int {
	for i := 0; i+len(word) <= len(text); i++ {
		if string(text[i:i+len(word)]) == word { // this comparison does not allocate
			return i
		}
	}
	return -1
}

// usedBy returns how many pages processes map. A process that has ended maps none.
func (k *keeper) usedBy(pids []int) (pages uint64) {
	for _, pid := range pids {
		if f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
			pages += k.number(f, hugetlbLine) << 10 / uint64(k.size)
			f.Close()
		}
	}
	return pages
}

// add adds pages and records them in the ledger. If there are surplus pages, the reservation grows
// by more, because they become part of it first.
func (k *keeper) add(pages uint64) error {
	r := hugetlb.Raise{Size: k.size, Node: -1}
	err := counted(func() error { return addPages(&r, pages) })
	if err != nil {
		return err
	}
	before := k.grown
	k.grown += r.By
	if before > 0 {
		err = own.strike(k.entry(before))
	}
	return errors.Join(err, own.add(k.entry(k.grown)))
}

func (k *keeper) entry(pages uint64) string {
	return fmt.Sprintf("hugepages %d %d", uint64(k.size), pages)
}

// giveBack removes the pages that were added. Pages that it cannot remove stay in the ledger, and
// the next process removes them.
func (k *keeper) giveBack(limit time.Duration) error {
	if err := returnPages(k.size, k.grown, limit); err != nil {
		return err
	}
	return own.strike(k.entry(k.grown))
}

// addPages adds all pages or none. It compacts memory if the kernel finds too few. The caller holds
// the lock of counted.
func addPages(r *hugetlb.Raise, pages uint64) (err error) {
	for range 3 {
		err = r.Add(pages, func(hugetlb.Raise) error { return nil })
		if !errors.Is(err, unix.ENOMEM) {
			break
		}
		_ = os.WriteFile("/proc/sys/vm/compact_memory", []byte("1"), 0)
	}
	if err != nil {
		return fmt.Errorf("reserve %d %v: %w", pages, r.Size, err)
	}
	return nil
}

// returnPages lowers the reservation by pages as soon as that many are free. It also does so if
// other processes account for all pages in use; those then count as surplus until they are free.
// The kernel frees the pages of a closed socket or ring some time after the close.
func returnPages(size hugetlb.Size, pages uint64, limit time.Duration) error {
	var err error
	begun := time.Now()
	done := within(limit, func() bool {
		var ok bool
		ok, err = tryReturn(size, pages, time.Since(begun) > limit/5)
		return ok || err != nil
	})
	if err != nil || done {
		return err
	}
	return fmt.Errorf("give back %d %v: fewer are free after %v, so something still holds them", pages, size, limit)
}

func tryReturn(size hugetlb.Size, pages uint64, beside bool) (ok bool, err error) {
	err = counted(func() error {
		var err error
		ok, err = lowerPages(size, pages, beside)
		return err
	})
	return ok, err
}

// lowerPages removes pages from the reservation if that many are free and not promised to a
// mapping. With beside it also does so if other processes use all pages that are not free. The
// caller holds the lock of counted.
func lowerPages(size hugetlb.Size, pages uint64, beside bool) (bool, error) {
	free, total, err := hugetlb.Free(size, -1)
	if err != nil {
		return false, err
	}
	if free < pages && !(beside && othersUse(size, total-min(free, total))) {
		return false, nil
	}
	reserved, _, err := hugetlb.Reservation(size, -1)
	if err != nil {
		return false, err
	}
	return true, hugetlb.Set(size, -1, reserved-min(pages, reserved))
}

// othersUse reports whether processes other than this one and its children map at least that many
// pages. Pages that several processes map count several times.
func othersUse(size hugetlb.Size, pages uint64) bool {
	k := keeper{size: size}
	ours := append(descendants(os.Getpid()), os.Getpid())
	if k.usedBy(ours) > 0 {
		return false
	}
	others := slices.DeleteFunc(processes(), func(pid int) bool { return slices.Contains(ours, pid) })
	return k.usedBy(others) >= pages
}

// processes lists all process IDs.
func processes() (pids []int) {
	names, _ := os.ReadDir("/proc")
	for _, n := range names {
		var pid int
		if _, err := fmt.Sscanf(n.Name(), "%d", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// descendants lists the children of a process, their children, and so on.
func descendants(of int) (all []int) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", of))
	for _, task := range tasks {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", of, task.Name()))
		for _, word := range strings.Fields(string(text)) {
			var pid int
			if _, err := fmt.Sscan(word, &pid); err == nil {
				all = append(append(all, pid), descendants(pid)...)
			}
		}
	}
	return all
}

// counted runs f while no other process changes a reservation. The programs under test take the
// same lock for their changes.
func counted(f func() error) error {
	unlock, err := hugetlb.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	return f()
}

// undoPages is returnPages for the ledger. value is "size pages". The pages of a dead process are
// free now or soon, unless a process that it started holds them.
func undoPages(value string) error {
	var size, pages uint64
	if _, err := fmt.Sscan(value, &size, &pages); err != nil {
		return err
	}
	return returnPages(hugetlb.Size(size), pages, time.Second)
}
