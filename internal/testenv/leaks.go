package testenv

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Leaks makes the test fail if, at its end, the process has file descriptors, goroutines or mapped
// huge pages that it does not have now. The message names them. The kernel and the scheduler get
// about two seconds to finish. Call it first in the test, so that it checks after every other
// clean-up. Do not call it in a test that runs in parallel with others.
func Leaks(t testing.TB) {
	t.Helper()
	primeRuntime()
	before := takeHoldings(t)
	t.Cleanup(func() {
		t.Helper()
		var left []string
		within(2*time.Second, func() bool {
			runtime.GC() // files that only a dead variable keeps open are not leaks
			left = takeHoldings(t).above(before)
			return len(left) == 0
		})
		for _, what := range left {
			t.Errorf("left over at the end of the test: %s", what)
		}
	})
}

// primeRuntime makes the Go runtime open the descriptors that it keeps for itself.
func primeRuntime() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
}

// holdings are the resources that a process has at one moment.
type holdings struct {
	fds        map[int]string    // descriptor to its description
	goroutines map[string]string // id to stack
	hugeKiB    int64             // mapped huge pages
}

func takeHoldings(t testing.TB) holdings {
	t.Helper()
	fds, err := openFDs()
	Mustf(t, err, "list the open descriptors")
	return holdings{fds, goroutines(), mappedHugeKiB()}
}

// above names the resources that h has and base has not.
func (h holdings) above(base holdings) []string {
	var left []string
	for fd, what := range h.fds {
		if base.fds[fd] != what {
			left = append(left, fmt.Sprintf("descriptor %d: %s", fd, what))
		}
	}
	for id, stack := range h.goroutines {
		if _, ok := base.goroutines[id]; !ok {
			left = append(left, stack)
		}
	}
	if h.hugeKiB > base.hugeKiB {
		left = append(left, fmt.Sprintf("%d KiB of mapped huge pages", h.hugeKiB-base.hugeKiB))
	}
	sort.Strings(left)
	return left
}

// openFDs maps each open descriptor to a description of it.
func openFDs() (map[int]string, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	fds := make(map[int]string)
	for _, e := range entries {
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil {
			continue // the descriptor that lists the directory
		}
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			fds[fd] = describe(fd, link)
		}
	}
	return fds, nil
}

// describe adds the family of a socket, or the type of a BPF object, to the kernel's name of a descriptor.
func describe(fd int, link string) string {
	switch {
	case strings.HasPrefix(link, "socket:"):
		return link + " " + family(fd)
	case strings.Contains(link, "bpf"):
		return link + " " + bpfKind(fd)
	}
	return link
}

func family(fd int) string {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return "of unknown family"
	}
	names := map[int]string{
		unix.AF_XDP: "AF_XDP", unix.AF_PACKET: "AF_PACKET", unix.AF_NETLINK: "AF_NETLINK",
		unix.AF_UNIX: "AF_UNIX", unix.AF_INET: "AF_INET", unix.AF_INET6: "AF_INET6",
	}
	if name, ok := names[domain]; ok {
		return name
	}
	return "family " + strconv.Itoa(domain)
}

// bpfKind returns the lines of fdinfo that distinguish a map, a program and a link.
func bpfKind(fd int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	var kind []string
	for line := range strings.Lines(string(text)) {
		for _, key := range []string{"map_type", "map_id", "prog_type", "prog_id", "link_type", "ifindex"} {
			if strings.HasPrefix(line, key+":") {
				kind = append(kind, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	return strings.Join(kind, ", ")
}

// goroutines maps the ID of each goroutine to its stack. It omits goroutines of the runtime and the
// test framework.
func goroutines() map[string]string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	all := make(map[string]string)
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		id, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		if !frameworks(stack) {
			all[id] = stack
		}
	}
	return all
}

// frameworks reports whether a goroutine belongs to testing, or to a part of the standard library
// that keeps it running.
func frameworks(stack string) bool {
	for _, of := range []string{"testing.(*T).Run(", "testing.tRunner.", "created by testing.", "os/signal.loop", "os/signal.signal_recv"} {
		if strings.Contains(stack, of) {
			return true
		}
	}
	return false
}

// mappedHugeKiB returns the huge-page memory that this process has mapped, whichever process reserved it.
func mappedHugeKiB() int64 {
	text, _ := os.ReadFile("/proc/self/smaps_rollup")
	var sum int64
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 1 && (f[0] == "Shared_Hugetlb:" || f[0] == "Private_Hugetlb:") {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			sum += n
		}
	}
	return sum
}
