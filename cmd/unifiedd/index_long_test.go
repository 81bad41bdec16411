package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/index"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// talkTuple returns a filter for one flow of talk near packet n, over IPv4 and without a tag.
func talkTuple(n uint64) string {
	flow := n / talkLife &^ 15
	return fmt.Sprintf("host 10.0.%d.%d and host 10.0.255.%d and port %d and port %d",
		flow%talkHosts>>8, flow%talkHosts&0xff, flow%7, 20000+flow%40000, []int{443, 80, 53}[flow%3])
}

// TestFindAgain: an export by 5-tuple with indexes finds the packets that tcpdump finds by reading
// everything, and in the long form takes less time. The capture has UNIFIEDD_BYTES. The test also
// exports by time, and by time and 5-tuple.
func TestFindAgain(t *testing.T) {
	const short = 48 << 20
	size := setting.Number(t, "UNIFIEDD_BYTES", short)
	dir := testenv.DiskDir(t)
	k := newTalk(11)
	var files []string
	for i, segment := 0, min(256<<20, int64(size)/4); int64(i)*segment < int64(size); i++ {
		files = append(files, filepath.Join(dir, fmt.Sprintf("cap-%03d.pcapng", i)))
		talkSegment(t, files[i], byte(i), segment, k)
		cold(t, files[i])
	}
	took, cpu := time.Now(), processTime()
	if said, status := runSays(append([]string{"index"}, files...)...); status != 0 {
		t.Fatal(said)
	}
	spent := processTime() - cpu
	t.Logf("%d packets in %d files; indexes in %v, %v of processors' time, %d ns a packet; %d bytes, %.2f %% of the capture", k.n, len(files),
		time.Since(took).Round(time.Millisecond), spent.Round(time.Millisecond), uint64(spent)/k.n, indexBytes(t, files), 100*float64(indexBytes(t, files))/float64(size))
	middle := begin.Add(time.Duration(k.n/2) * talkStep)
	span := []string{"--from", stamp(uint64(middle.UnixNano())), "--to", stamp(uint64(middle.Add(time.Duration(k.n/1000+4000) * talkStep).UnixNano()))}
	tuple := talkTuple(k.n/2 + 4000)
	through := askTcpdump(t, files, "", filepath.Join(dir, "through.pcap"))
	theirs := askTcpdump(t, files, tuple, filepath.Join(dir, "theirs.pcap"))
	t.Logf("tcpdump: all of it %v, %q %v", through, tuple, theirs)
	for _, c := range []struct {
		what   string
		span   []string
		filter string
		than   time.Duration
	}{{"time", span, "", through}, {"5-tuple", nil, tuple, theirs}, {"time and 5-tuple", span, tuple, theirs}} {
		for _, f := range files {
			cold(t, f)
		}
		before := time.Now()
		got, _ := exportOf(t, files, c.span, c.filter)
		took := time.Since(before)
		t.Logf("by %s: %d packets in %v, a %.0fth of tcpdump's time; %d batches passed over", c.what, got.packets, took.Round(time.Millisecond), float64(c.than)/float64(took), got.passed)
		if got.packets == 0 || got.passed == 0 && c.filter != "" {
			t.Errorf("by %s: %s", c.what, got.said)
		}
		if size > short && took > c.than {
			t.Errorf("by %s: longer than tcpdump reads through", c.what)
		}
		if c.span == nil {
			ours := filepath.Join(dir, "ours.pcapng")
			write(t, ours, got.file)
			if a, b := tcpdumpOf(t, ours, ""), tcpdumpOf(t, filepath.Join(dir, "theirs.pcap"), ""); a != b {
				t.Errorf("%d packets, and tcpdump finds %d", strings.Count(a, "\n"), strings.Count(b, "\n"))
			}
		}
	}
}

// askTcpdump makes tcpdump read all files, one after the other, and write the matching packets to one file.
func askTcpdump(t *testing.T, files []string, filter, out string) time.Duration {
	t.Helper()
	list := filepath.Join(t.TempDir(), "list")
	write(t, list, []byte(strings.Join(files, "\n")+"\n"))
	for _, f := range files {
		cold(t, f)
	}
	if filter == "" {
		out = os.DevNull
	}
	begin := time.Now()
	cmd := exec.Command(testenv.Tool(t, "tcpdump"), "-Z", "root", "-V", list, "-n", "-w", out, filter)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, said)
	}
	return time.Since(begin)
}

// cold removes a file from the page cache.
func cold(t *testing.T, name string) {
	t.Helper()
	for _, name := range []string{name, name + index.Suffix} {
		f, err := os.Open(name)
		if err != nil {
			continue // the index does not exist yet
		}
		testenv.Must(t, f.Sync())
		_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		f.Close()
	}
}

func indexBytes(t *testing.T, files []string) (n int64) {
	t.Helper()
	for _, f := range files {
		info, err := os.Stat(f + index.Suffix)
		testenv.Must(t, err)
		n += info.Size()
	}
	return n
}

// processTime returns the CPU time of this process.
func processTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
