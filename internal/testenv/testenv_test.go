package testenv

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/hugetlb"
	"github.com/unifiedd/unifiedd/internal/netnsdir"
)

// TestHugePagesGoBack: the end of a test lowers both counters by what the test has added, also while its pages are in
// use. The kernel frees those later.
func TestHugePagesGoBack(t *testing.T) {
	Root(t)
	var mem []byte
	t.Run("reserve and use", func(t *testing.T) {
		HugePages(t, 8*hugePageSize-1)
		if mem = mapPages(8); mem == nil {
			t.Fatal("8 pages cannot be mapped")
		}
		if got := mappedHugeKiB(); got < 8*hugePageSize>>10 {
			t.Errorf("mapped huge pages: %d KiB", got)
		}
		if own.file == nil {
			t.Error("the ledger has no entry")
		}
	})
	Check(t, unix.Munmap(mem))
	if own.file != nil {
		t.Errorf("ledger still has %q", own.entries)
	}
}

// TestHugePagesByDifference: HugePages changes the counters by exact differences. The test reads the
// counters under the lock, where no other test process changes them.
func TestHugePagesByDifference(t *testing.T) {
	Root(t)
	err := counted(func() error {
		before, surplus, err := hugetlb.Reservation(hugetlb.MiB2, -1)
		if err != nil {
			return err
		}
		r := hugetlb.Raise{Size: hugetlb.MiB2, Node: -1}
		if err := errors.Join(overcommit(5, 0), addPages(&r, 3)); err != nil {
			return err
		}
		if now, _, _ := hugetlb.Reservation(hugetlb.MiB2, -1); now != before+r.By || r.By < 3 || r.By > 3+surplus {
			t.Errorf("reservation went from %d to %d, said to be %d more, want 3 and at most %d of surplus", before, now, r.By, surplus)
		}
		if err := errors.Join(hugetlb.Set(hugetlb.MiB2, -1, before), overcommit(0, 5)); err != nil {
			return err
		}
		if now, _, _ := hugetlb.Reservation(hugetlb.MiB2, -1); now != before {
			t.Errorf("reservation went back to %d, want %d", now, before)
		}
		return nil
	})
	Must(t, err)
}

func TestSendRawExactly(t *testing.T) {
	p := NewPair(t, PairOptions{NoAddresses: true}) // so that the kernel does not answer
	frames := Stream(&p.A, &p.B, 7, 0, 20, 200)
	frames = append(frames, tag(tag(UDP(&p.A, &p.B, 7, 20, 60), 0x8100, 5), 0x88a8, 6), udp6(&p.A, &p.B, 7, 21, 100))
	fd := p.B.listen(t)
	start := time.Now()
	if n := SendRaw(t, &p.A, frames, SendOptions{Rate: 200}); n != len(frames) {
		t.Errorf("interface took %d of %d frames", n, len(frames))
	}
	if d := time.Since(start); d < 100*time.Millisecond {
		t.Errorf("22 frames at 200 a second took only %v", d)
	}
	buf := make([]byte, 4096)
	for i, want := range frames {
		n, err := unix.Read(fd, buf)
		Must(t, err)
		// The socket returns the frame without the outer tag.
		if want[12] == 0x88 {
			want = slices.Delete(want, 12, 16)
		}
		if seq, _ := Sequence(want); !bytes.Equal(buf[:n], want) || seq != uint64(i) || !Intact(want) {
			t.Errorf("frame %d arrived as\n%x, want\n%x", i, buf[:n], want)
		}
	}
}

// listen opens a packet socket that receives everything, with a time limit.
func (e *End) listen(t *testing.T) int {
	t.Helper()
	fd := -1
	e.Do(t, func() {
		var err error
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0x0300)
		Must(t, err)
	})
	t.Cleanup(func() { unix.Close(fd) })
	Must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}))
	return fd
}

// TestKernelAcceptsOurUDP: the kernel accepts the lengths and checksums of our frames.
func TestKernelAcceptsOurUDP(t *testing.T) {
	p := NewPair(t, PairOptions{IPv6: true})
	for _, ip := range []netip.Addr{p.B.IP, p.B.IP6} {
		var conn *net.UDPConn
		p.B.Do(t, func() {
			var err error
			if conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 7))); err != nil {
				t.Fatal(err)
			}
		})
		defer conn.Close()
		build := UDP
		if ip.Is6() {
			build = udp6
		}
		for i, size := range []int{0, 99, 1514} {
			SendRaw(t, &p.A, [][]byte{build(&p.A, &p.B, 7, uint64(i), size)}, SendOptions{})
			buf := make([]byte, 2000)
			conn.SetReadDeadline(time.Now().Add(2 * time.Second))
			n, err := conn.Read(buf)
			if seq, _ := Sequence(buf[:n]); err != nil || seq != uint64(i) || !Intact(buf[:n]) {
				t.Errorf("%v size %d: %v, number %d", ip, size, err, seq)
			}
		}
	}
}

func TestIntactSeesDamage(t *testing.T) {
	p := &Pair{A: End{IP: netip.MustParseAddr("10.0.0.1")}, B: End{IP: netip.MustParseAddr("10.0.0.2")}}
	f := UDP(&p.A, &p.B, 9, 77, 300)
	if !Intact(f) {
		t.Fatal("a fresh frame is not intact")
	}
	f[200]++
	if Intact(f) {
		t.Error("a damaged frame is intact")
	}
	if _, ok := Sequence(f[:44]); ok {
		t.Error("a cut frame has a number")
	}
}

// TestKilledProcessIsCleanedUpAfter: the next user of the package undoes the changes of a killed
// process. The test runs itself in a child that dies with everything open.
func TestKilledProcessIsCleanedUpAfter(t *testing.T) {
	Root(t)
	if os.Getenv("TESTENV_DIE") != "" {
		p := NewPair(t, PairOptions{})
		HugePages(t, 2*hugePageSize)
		os.Stdout.WriteString(p.A.Name + " " + Zram(t, 1<<20) + " " + Ext4(t, 1<<20) + "\n")
		unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	tmp := t.TempDir() // with separate ledgers
	t.Setenv("TESTENV_LEDGERS", tmp)
	t.Setenv("TMPDIR", tmp) // of the child, which leaves files there
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "TESTENV_DIE=1")
	out, _ := cmd.Output()
	f := strings.Fields(string(out))
	if len(f) != 3 || !exists(netnsdir.Path(f[0])) {
		t.Fatalf("the child printed %q and left no namespace", out)
	}
	NewNamespace(t)
	for _, gone := range []string{netnsdir.Path(f[0]), "/sys/block/" + filepath.Base(f[1])} {
		if exists(gone) {
			t.Errorf("%s was not swept", gone)
		}
	}
	if mounts, _ := os.ReadFile("/proc/self/mounts"); strings.Contains(string(mounts), f[2]) {
		t.Errorf("%s was not unmounted", f[2])
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "ledger-*")); len(left) != 1 {
		t.Errorf("ledgers left: %q", left)
	}
}

func TestLeaksNamesWhatIsLeft(t *testing.T) {
	before := takeHoldings(t)
	fd, err := unix.MemfdCreate("forgotten", unix.MFD_CLOEXEC)
	Must(t, err)
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	Must(t, err)
	stop := make(chan struct{})
	go func() { <-stop }()
	left := strings.Join(takeHoldings(t).above(before), "\n")
	for _, want := range []string{"memfd:forgotten", "AF_UNIX", "TestLeaksNamesWhatIsLeft.func"} {
		if !strings.Contains(left, want) {
			t.Errorf("the list does not name %s:\n%s", want, left)
		}
	}
	unix.Close(fd)
	unix.Close(sock)
	close(stop)
	if !within(2*time.Second, func() bool { return len(takeHoldings(t).above(before)) == 0 }) {
		t.Errorf("still there: %q", takeHoldings(t).above(before))
	}
}

// mapPages maps huge pages, or returns nil.
func mapPages(n int) []byte {
	b, err := unix.Mmap(-1, 0, n*hugePageSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_POPULATE)
	if err != nil {
		return nil
	}
	return b
}
