package flows

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// tcpdump is a capture of one end's packets by the program of that name.
type tcpdump struct {
	cmd  *exec.Cmd
	file string
	said bytes.Buffer  // not to be read before all is closed
	all  chan struct{} // closed when the program has written all of it
}

// startTcpdump starts a capture of the packets that leave an end. tcpdump is capturing when it returns. Its
// buffer has room for thousands of packets, in the long form more, so that none is lost.
func startTcpdump(t *testing.T, e *testenv.End) *tcpdump {
	t.Helper()
	return startTcpdumpOf(t, e, "out", 16384)
}

// startTcpdumpOf is startTcpdump for one direction, "out" or "in", or both, "inout", for at most longest bytes of
// each packet, and for packets that match a filter.
func startTcpdumpOf(t *testing.T, e *testenv.End, direction string, longest int, filter ...string) *tcpdump {
	t.Helper()
	testenv.Tool(t, "tcpdump")
	d := &tcpdump{file: filepath.Join(t.TempDir(), direction+".pcap"), all: make(chan struct{})}
	memory := min(16<<10*fromEnvironment("UNIFIEDD_ROUNDS", usualRounds), 256<<10) // KiB; each packet takes 16
	args := []string{"-i", e.Ifname, "-Q", direction, "-n", "-s", strconv.Itoa(longest), "-B", strconv.Itoa(memory), "--immediate-mode", "-U", "-Z", "root", "-w", d.file, "--"}
	d.cmd = e.Command("tcpdump", append(args, filter...)...)
	errs, err := d.cmd.StderrPipe()
	testenv.Must(t, err)
	testenv.Must(t, d.cmd.Start())
	t.Cleanup(func() { _ = d.cmd.Process.Kill(); _ = d.cmd.Wait() })
	b := make([]byte, 4096)
	for !strings.Contains(d.said.String(), "listening on") {
		n, err := errs.Read(b)
		if err != nil {
			t.Fatalf("tcpdump: %v: %s", err, d.said.String())
		}
		d.said.Write(b[:n])
	}
	go func() { _, _ = io.Copy(&d.said, errs); close(d.all) }()
	return d
}

var (
	pcapHead     = 24
	pcapPacket   = 16
	dropped      = regexp.MustCompile(`(\d+) packets? dropped by kernel`)
	ifaceDropped = regexp.MustCompile(`(\d+) packets? dropped by interface`)
)

// stop ends the capture once its file has n packets with this many bytes in all, and returns them. The test
// fails if tcpdump itself lost any.
func (d *tcpdump) stop(t *testing.T, n, bytes int) [][]byte {
	t.Helper()
	want := int64(pcapHead + n*pcapPacket + bytes)
	testenv.Wait(t, 20*time.Second, "tcpdump to write what was sent", func() bool {
		info, err := os.Stat(d.file)
		return err == nil && info.Size() >= want
	})
	testenv.Must(t, d.cmd.Process.Signal(os.Interrupt))
	<-d.all
	if err := d.cmd.Wait(); err != nil {
		t.Fatalf("tcpdump: %v: %s", err, d.said.String())
	}
	for _, re := range []*regexp.Regexp{dropped, ifaceDropped} {
		if m := re.FindStringSubmatch(d.said.String()); m != nil && m[1] != "0" {
			t.Fatalf("tcpdump dropped packets of its own: %s", d.said.String())
		}
	}
	return classic(t, d.file)
}

// classic reads a capture in tcpdump's own format.
func classic(t *testing.T, name string) (all [][]byte) {
	t.Helper()
	f, err := os.Open(name)
	testenv.Must(t, err)
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	testenv.Must(t, err)
	for {
		data, _, err := r.ReadPacketData()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, data)
	}
}

// selected returns what tcpdump selects of its own capture by an expression.
func (d *tcpdump) selected(t *testing.T, expression string) [][]byte {
	t.Helper()
	out := d.file + ".selected"
	if b, err := exec.Command("tcpdump", "-n", "-Z", "root", "-r", d.file, "-w", out, expression).CombinedOutput(); err != nil {
		t.Fatalf("tcpdump: %v: %s", err, b)
	}
	return classic(t, out)
}

var statEntries = regexp.MustCompile(`Number of stat entries = (\d+)`)

// countedStatistics returns how many statistics blocks capinfos finds for each interface of a file.
func countedStatistics(t *testing.T, file string) (counts []int) {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "capinfos"), "-M", file).CombinedOutput()
	if err != nil {
		t.Fatalf("capinfos: %v: %s", err, out)
	}
	for _, m := range statEntries.FindAllStringSubmatch(string(out), -1) {
		n, _ := strconv.Atoi(m[1])
		counts = append(counts, n)
	}
	return counts
}
