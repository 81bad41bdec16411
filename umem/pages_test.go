package umem

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/hugetlb"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

func mustAllocate(t *testing.T, c Config) *Memory {
	t.Helper()
	m, err := Allocate(c)
	testenv.Must(t, err)
	t.Cleanup(func() { m.GiveBack() })
	return m
}

// TestAllocateWaits: a process that allocates waits for another one that already does.
func TestAllocateWaits(t *testing.T) {
	testenv.Root(t)
	unlock, err := hugetlb.Lock()
	testenv.Must(t, err)
	free, _ := mustFree(t, -1)
	allocated := make(chan error)
	go func() {
		m, err := Allocate(Config{Size: (free + 8) * hugePage})
		allocated <- errors.Join(err, m.GiveBack())
	}()
	select {
	case err := <-allocated:
		t.Fatalf("it did not wait for the other: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	unlock()
	testenv.Check(t, <-allocated)
}

// TestOpenAllocated: Open uses and releases allocated memory, and refuses memory that does not fit
// the configuration.
func TestOpenAllocated(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	c := Config{Size: 4 << 20, Control: 1}
	c.Memory = mustAllocate(t, c)
	r := open(t, c)
	checkMemory(t, r, "ht")
	checkControl(t, r)
	if len(c.Memory.Files()) != 0 {
		t.Error("an open region's memory was not released")
	}
	_, err := Open(c)
	wantError(t, err, "map unifiedd-region", "has 0 parts")

	for _, other := range []Config{{Size: 2 << 20, Control: 1}, {Size: 6 << 20, Control: 1}, {Size: 4 << 20}} {
		c.Memory = mustAllocate(t, other)
		_, err := Open(c)
		wantError(t, err, "open region: map unifiedd-", "allocated for")
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	testenv.Must(t, err)
	testenv.Must(t, f.Truncate(4<<20))
	c.Memory = MemoryOf(f)
	_, err = Open(c)
	wantError(t, err, "map unifiedd-region: the memory that was allocated for it is 4194304 bytes in pages of 4 KiB, and it wants 4194304 bytes on 2 MiB huge pages")
}

// TestOpenInherited: another process without the right to reserve can open a region on inherited
// memory, when no other page is free.
func TestOpenInherited(t *testing.T) {
	testenv.Root(t)
	c := Config{Size: 4 << 20, Control: 1}
	if os.Getenv("UMEM_INHERIT") != "" {
		c.Memory = MemoryOf(os.NewFile(3, "data"), os.NewFile(4, "control"))
		checkMemory(t, open(t, c), "ht")
		return
	}
	m := mustAllocate(t, c)
	cmd := exec.Command(os.Args[0], "-test.run", "^TestOpenInherited$", "-test.v")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), "UMEM_INHERIT=1"), m.Files()
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

// allocator is set in the environment of a process that allocates and opens a region when its
// standard input ends, and prints the result. thief is set in that of a process that takes pages
// which others have reserved.
const allocator, thief = "UMEM_ALLOCATOR", "UMEM_THIEF"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(allocator) != "":
		os.Stdin.Read(make([]byte, 1))
		c := Config{Size: 32 << 20, Control: 1}
		var err error
		if c.Memory, err = Allocate(c); err == nil {
			var r *Region
			if r, err = Open(c); err == nil {
				time.Sleep(100 * time.Millisecond)
				err = errors.Join(r.Close(), c.Memory.GiveBack())
			}
		}
		if err != nil {
			os.Stdout.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	case os.Getenv(thief) != "":
		testenv.StirHugePages(os.Stdin, 16)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestAllocateTogether: processes that allocate at the same moment all get what they need, alone
// and beside a program that takes free pages and gives them back. Nothing stays reserved.
func TestAllocateTogether(t *testing.T) {
	testenv.Root(t)
	for _, beside := range []bool{false, true} {
		for range 3 {
			allocateTogether(t, beside)
		}
	}
}

func allocateTogether(t *testing.T, beside bool) {
	t.Helper()
	if beside {
		defer testenv.Stir(t, os.Args[0], thief+"=1")()
	}
	r, w, err := os.Pipe()
	testenv.Must(t, err)
	type process struct {
		*exec.Cmd
		said strings.Builder
	}
	var all []*process
	for range 6 {
		p := &process{Cmd: exec.Command(os.Args[0])}
		p.Env, p.Stdin, p.Stdout = append(os.Environ(), allocator+"=1"), r, &p.said
		testenv.Must(t, p.Start())
		all = append(all, p)
	}
	r.Close()
	time.Sleep(100 * time.Millisecond)
	w.Close() // all of them start now
	for _, p := range all {
		if err := p.Wait(); err != nil {
			t.Errorf("beside another %v: %v: %s", beside, err, p.said.String())
		}
	}
}

func mustFree(t *testing.T, node int) (free, total uint64) {
	t.Helper()
	free, total, err := FreePages(Huge2M, node)
	testenv.Must(t, err)
	return free, total
}

// TestAllocateTooMuch: if more is requested than the machine has, in pages of either size, Allocate
// leaves nothing reserved. On a machine without pages of 1 GiB the error says so.
func TestAllocateTooMuch(t *testing.T) {
	testenv.Root(t)
	var info unix.Sysinfo_t
	testenv.Must(t, unix.Sysinfo(&info))
	for _, p := range []PageSize{Huge2M, Huge1G} {
		c := Config{Size: 2 * info.Totalram * uint64(info.Unit), Pages: p}
		if p == Huge1G && !testenv.HasGiantPages() {
			noGiantPages(t, c)
			continue
		}
		if p == Huge2M { // the kernel would search all its memory
			c.Size = math.MaxUint64
			_, err := Allocate(c)
			wantError(t, err, "allocate region: region size")
			continue
		}
		_, before, err := FreePages(p, -1)
		testenv.Must(t, err)
		_, err = Allocate(c)
		wantError(t, err, p.String(), "found memory for only", "reserve them at boot")
		if !errors.Is(err, unix.ENOMEM) {
			t.Errorf("%v is not ENOMEM", err)
		}
		if _, after, _ := FreePages(p, -1); after != before {
			t.Errorf("%d pages are reserved, %d were before", after, before)
		}
	}
}

// TestAllocateAsUser: a user who may not reserve gets free pages. If there are too few, the error
// says what is missing.
func TestAllocateAsUser(t *testing.T) {
	testenv.Root(t)
	testenv.HugePages(t, 4<<20)
	done := make(chan error, 2)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has another user
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			done <- errno
			return
		}
		m, err := Allocate(Config{Size: 4 << 20})
		done <- errors.Join(err, m.GiveBack())
		_, err = Allocate(Config{Size: 1 << 40})
		done <- err
	}()
	testenv.Must(t, <-done)
	wantError(t, <-done, "allocate region: too few huge pages are free", "524288 2 MiB huge pages needed", "permission denied")
}

func TestNeeds(t *testing.T) {
	node := 1
	for _, test := range []struct {
		c    Config
		want []Need
	}{
		{Config{Size: 256 << 20, Control: 1}, []Need{{Huge2M, -1, 258 << 20}}},
		{Config{Size: 3 << 20}, []Need{{Huge2M, -1, 4 << 20}}},
		{Config{Size: 256 << 20, Control: 2 << 20, Pages: Huge1G, Node: &node}, []Need{{Huge1G, 1, 1 << 30}, {Huge2M, 1, 2 << 20}}},
		{Config{Size: 256 << 20, Pages: Huge1G}, []Need{{Huge1G, -1, 1 << 30}}},
		{Config{Size: 256 << 20, Control: 1, Pages: Ordinary}, nil},
	} {
		if diff := cmp.Diff(test.want, test.c.Needs()); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.c, diff)
		}
	}
	_, _, err := FreePages(Ordinary, -1)
	wantError(t, err, "ordinary pages are not reserved")
	_, _, err = FreePages(Huge2M, 999)
	wantError(t, err, "count 2 MiB huge pages", "node999")
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

// TestAutoPages: a region of Auto has huge pages if they are free, and ordinary ones if the machine has none, with the
// reason. More memory than there is remains an error, on any pages.
func TestAutoPages(t *testing.T) {
	testenv.Root(t)
	if hugetlb.Supported(hugetlb.MiB2) == nil {
		testenv.HugePages(t, 8<<20)
		r := open(t, Config{Size: 4 << 20, Control: 1})
		if r.Pages() != Huge2M || r.WhyOrdinary() != nil {
			t.Errorf("with huge pages: %v, %v", r.Pages(), r.WhyOrdinary())
		}
		testenv.WithoutHugePages(t, "TestAutoPages")
		return
	}
	r := open(t, Config{Size: 4 << 20, Control: 1})
	if r.Pages() != Ordinary || r.WhyOrdinary() == nil {
		t.Errorf("without huge pages: %v, %v", r.Pages(), r.WhyOrdinary())
	}
	m, err := Allocate(Config{Size: 4 << 20})
	if err != nil || len(m.Files()) != 0 || m.Short() == nil {
		t.Errorf("memory without huge pages: %v, %v", m, err)
	}
	_, err = Open(Config{Size: 1 << 40})
	wantError(t, err, "open region", "1048576 MiB", "available")
}
