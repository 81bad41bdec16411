package flows

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// Each source is a program of other authors. The tests compare its own count of packets with ours.

// filtered starts a flow with a filter, in a lab with addresses.
func filtered(t *testing.T, layout, expression string) (*lab, *Flow) {
	t.Helper()
	l := newLab(t, testenv.PairOptions{})
	l.B.Deepen(t)
	text := strings.Replace(l.defaults(layout), "ring: 2048", `ring: 4096, filter: "`+expression+`"`, 1)
	return l, l.start(t, text, Options{}).Flows()[0]
}

// taken stops the flow, and checks that it received or counted as lost exactly n packets.
func (l *lab) taken(t *testing.T, f *Flow, n uint64) {
	t.Helper()
	s := await(t, f, "every packet to be taken or lost", func(s status.Flow) bool {
		return s.Packets+lost(s) >= n && s.Waiting == 0
	})
	s = l.atRest(t, f, s.Offered)
	if s.Packets+lost(s) != n {
		t.Errorf("the source sent %d packets, %d are received and %d lost: %v", n, s.Packets, lost(s), s.Dropped)
	}
	l.accounted(t, s)
	t.Logf("%d packets sent, %d received", n, s.Packets)
}

// number returns the number that re finds in a program's output.
func number(t *testing.T, re, out string) uint64 {
	t.Helper()
	m := regexp.MustCompile(re).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no %q in %s", re, out)
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	testenv.Must(t, err)
	return n
}

func TestFromPing(t *testing.T) {
	testenv.Long(t, "the sender makes no difference to us")
	l, f := filtered(t, "slot", "icmp")
	out, _ := l.A.Command("ping", "-c", "50", "-i", "0.002", "-W", "0.1", "-s", "1000", l.B.IP.String()).CombinedOutput() // there is no answer
	l.taken(t, f, number(t, `(\d+) packets transmitted`, string(out)))
}

func TestFromTrafgen(t *testing.T) {
	testenv.Long(t, "the sender makes no difference to us")
	l, f := filtered(t, "packed", "udp port 9")
	script := filepath.Join(t.TempDir(), "udp.trafgen")
	text := fmt.Sprintf("{ eth(da=%s, sa=%s), ipv4(saddr=%s, daddr=%s), udp(sp=1234, dp=9), fill('A', 600) }\n", l.B.MAC, l.A.MAC, l.A.IP, l.B.IP)
	testenv.Must(t, os.WriteFile(script, []byte(text), 0o600))
	args := []string{"-i", script, "-o", l.A.Ifname, "-n", strconv.Itoa(testenv.Fewer(20000)), "--cpus", "1", "-q"}
	if l.IsCard() { // without a rate it ends when the queue is full; with one it sends each second in a burst
		args = append(args, "--rate", "500pps")
	}
	cmd := l.A.Command(testenv.Tool(t, "trafgen"), args...)
	cmd.Dir = t.TempDir() // it makes a file there
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("trafgen: %v: %s", err, out)
	}
	n := number(t, `(\d+) packets outgoing`, string(out))
	t.Logf("trafgen sent %d, its interface %d and dropped %d", n, l.offered(t), l.refused(t))
	l.taken(t, f, n-l.refused(t))
}

func TestFromTcpreplay(t *testing.T) {
	testenv.Long(t, "the sender makes no difference to us")
	l, f := filtered(t, "slot", "udp port 9")
	name := filepath.Join(t.TempDir(), "replay.pcap")
	frames := testenv.Stream(&l.A, &l.B, 9, 0, 2000, 900)
	writeClassic(t, name, frames)
	out := l.A.Run(t, testenv.Tool(t, "tcpreplay"), "-i", l.A.Ifname, "--pps=20000", name)
	l.taken(t, f, number(t, `Actual: (\d+) packets`, out))
	if !t.Failed() && lost(f.last) == 0 {
		samePackets(t, "the file", captures.Packets(t, l.files(t)...), frames)
	}
}

func writeClassic(t *testing.T, name string, frames [][]byte) {
	t.Helper()
	out, err := os.Create(name)
	testenv.Must(t, err)
	defer out.Close()
	w := pcapgo.NewWriter(out)
	testenv.Must(t, w.WriteFileHeader(16384, layers.LinkTypeEthernet))
	for _, f := range frames {
		testenv.Must(t, w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: len(f), Length: len(f)}, f))
	}
}

// TestFromIperf3 starts a flow while iperf3 runs. The flow takes the datagrams from then on, and the server's
// kernel has those that came before.
func TestFromIperf3(t *testing.T) {
	testenv.Long(t, "the sender makes no difference to us")
	const datagram = 1000
	testenv.Tool(t, "iperf3")
	l := newLab(t, testenv.PairOptions{})
	before := l.udpReceived(t) // the namespaces of cards outlive a test
	server := l.B.Command("iperf3", "-s", "-1", "-J", "-B", l.B.IP.String())
	var served bytes.Buffer
	server.Stdout = &served
	testenv.Must(t, server.Start())
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	testenv.Wait(t, 10*time.Second, "iperf3 to listen", func() bool {
		return strings.Contains(l.B.Run(t, "ss", "-Hltn"), ":5201")
	})
	client := l.A.Command("iperf3", "-c", l.B.IP.String(), "-u", "-b", strconv.Itoa(testenv.Fewer(100))+"M",
		"-l", strconv.Itoa(datagram), "-t", strconv.Itoa(int(testenv.Within(time.Second).Seconds())), "-J")
	var sent bytes.Buffer
	client.Stdout = &sent
	testenv.Must(t, client.Start())
	testenv.Wait(t, 10*time.Second, "datagrams to arrive", func() bool { return l.A.Stats(t).TxPackets > l.before.TxPackets+200 })
	text := strings.Replace(l.defaults("slot"), "ring: 2048", `ring: 4096, filter: "udp port 5201"`, 1)
	f := l.start(t, text, Options{}).Flows()[0]
	if err := client.Wait(); err != nil {
		t.Fatalf("iperf3: %v: %s", err, sent.String())
	}
	if err := server.Wait(); err != nil {
		t.Fatalf("iperf3 -s: %v: %s", err, served.String())
	}
	var out struct {
		End struct{ Sum struct{ Packets uint64 } }
	}
	testenv.Must(t, json.Unmarshal(sent.Bytes(), &out))
	const hello = 1 // datagram that the client sends and does not count
	kernel := l.udpReceived(t) - before
	if all := out.End.Sum.Packets + hello; kernel == 0 || kernel >= all {
		t.Fatalf("the kernel has %d of %d datagrams: the test shows nothing", kernel, all)
	}
	l.taken(t, f, out.End.Sum.Packets+hello-kernel-l.refused(t))
}

// udpReceived is how many datagrams the kernel of end B gave to sockets, or dropped because a socket had no
// room.
func (l *lab) udpReceived(t *testing.T) (n uint64) {
	t.Helper()
	var names []string
	for line := range strings.Lines(l.B.Run(t, "cat", "/proc/net/snmp")) {
		f := strings.Fields(line)
		if f[0] != "Udp:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, name := range names {
			if name == "InDatagrams" || name == "InErrors" {
				v, _ := strconv.ParseUint(f[i], 10, 64)
				n += v
			}
		}
	}
	return n
}

// TestFromTestpmd makes DPDK send as fast as it can.
func TestFromTestpmd(t *testing.T) {
	testenv.Long(t, "the sender makes no difference to us")
	for _, driver := range some("net_af_xdp0,iface=%s,force_copy=1", "net_af_packet0,iface=%s") {
		t.Run(driver[:strings.Index(driver, "0")], func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			f := l.start(t, l.defaults("slot"), Options{}).Flows()[0]
			out := l.testpmd(t, fmt.Sprintf(driver, l.A.Ifname), testenv.Within(300*time.Millisecond))
			offered, dropped := l.offered(t), l.refused(t)
			t.Logf("testpmd sent %d, its device %d and dropped %d", number(t, `TX-packets: (\d+)`, out), offered, dropped)
			l.taken(t, f, offered)
			if n := number(t, `TX-packets: (\d+)`, out); offered == 0 || offered > n || n-offered > dropped+inRing {
				t.Errorf("testpmd sent %d packets, its device %d and dropped %d", n, offered, dropped)
			}
		})
	}
}

// inRing is the most packets DPDK's drivers have in a ring when they stop; they
// count them as sent.
const inRing = 4096

// testpmd makes DPDK's test program send at end A for a while. The program takes some time to begin.
func (l *lab) testpmd(t *testing.T, device string, span time.Duration) string {
	t.Helper()
	cmd := l.A.Command(testenv.Tool(t, "dpdk-testpmd"), "--no-huge", "-m", "512", "--no-pci", "--no-shconf", "--file-prefix", l.A.Ifname, "--no-telemetry", "-l", "0,1",
		"--vdev", device, "--", "-i", "--forward-mode=txonly", "--txpkts=1000", "--total-num-mbufs=16384", "--no-mlockall")
	in, err := cmd.StdinPipe()
	testenv.Must(t, err)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	testenv.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	fmt.Fprintln(in, "start")
	before := l.A.Stats(t).TxPackets
	testenv.Wait(t, 10*time.Second, "dpdk-testpmd to send", func() bool { return l.A.Stats(t).TxPackets > before })
	time.Sleep(span)
	fmt.Fprintln(in, "stop")
	fmt.Fprintln(in, "show port stats all")
	fmt.Fprintln(in, "quit")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("dpdk-testpmd: %v: %s", err, out.String())
	}
	l.A.Run(t, "ip", "link", "set", l.A.Ifname, "promisc", "off") // which it leaves on
	return out.String()
}
