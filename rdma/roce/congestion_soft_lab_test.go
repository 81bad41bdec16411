package roce

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// TestCongestedSoftRoCE: the same as TestCongestedLink with the kernel's RoCE in software: two programs ib_write_bw
// send to a third machine over the same link. docs/benchmarks/roce.md has both beside each other.
//
// The three machines are namespaces, and before the series 7 the kernel's RoCE works in the initial one only: by its
// source (rxe_net.c of Linux 6.1 and 6.12) it looks up routes in init_net, and has its UDP sockets there. A device
// can be made in another namespace, but its queue pairs fail with their first packet. There, the test expects that.
func TestCongestedSoftRoCE(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "it measures another program")
	for _, module := range []string{"sch_tbf", "sch_red", "ib_uverbs", "rdma_rxe"} {
		if out, err := exec.Command("modprobe", module).CombinedOutput(); err != nil {
			t.Fatalf("load the module %s: %v\n%s", module, err, out)
		}
	}
	const span = 10 * time.Second
	marked, dropped := contendSoft(t, 26<<2|wire.ECT0, span), contendSoft(t, 26<<2, span)
	if labenv.Kernel(t) != labenv.Linux7 {
		return
	}
	logDivision(t, "kernel, marked", marked, span)
	logDivision(t, "kernel, not marked", dropped, span)
	for _, s := range []division{marked, dropped} {
		if s.packets[0]+s.packets[1] == 0 {
			t.Error("nothing arrived")
		}
	}
}

// contendSoft is contend with rxe and ib_write_bw.
func contendSoft(t *testing.T, class uint8, span time.Duration) (s division) {
	ends := testenv.NewSwitch(t, 3, testenv.PairOptions{})
	var devices [3]string
	for i, e := range ends {
		devices[i] = softRoCEAt(t, e, fmt.Sprintf("rxe_s%d", i))
		defer func() { // the next ones have the same names
			if err := netlink.RdmaLinkDel(devices[i]); err != nil {
				t.Errorf("remove %s: %v", devices[i], err)
			}
		}()
	}
	ends[2].Limit(t, bottleneck)
	args := func(i int, device string, port int) []string {
		return []string{"-d", device, "-x", softGID(t, device, ends[i]), "-p", strconv.Itoa(port), "-s", "16384", "-m", "1024", "-t", "32", "-u", "18", "--tclass", strconv.Itoa(int(class)),
			"-D", strconv.Itoa(int(span.Seconds()) + 2), "-f", "1", "-F", "--report_gbits"}
	}
	tool := testenv.Tool(t, "ib_write_bw")
	var running sync.WaitGroup
	var failed [2]error
	for i := range 2 {
		port := 18515 + i
		server := ends[2].Command(tool, args(2, devices[2], port)...)
		var said bytes.Buffer
		server.Stdout, server.Stderr = &said, &said
		testenv.Must(t, server.Start())
		defer func() {
			_ = server.Process.Kill() // it has ended if the client has
			_ = server.Wait()
			t.Logf("the server of sender %d: %s", i, &said)
		}()
		running.Go(func() {
			for try := 0; ; try++ {
				out, err := ends[i].Command(tool, append(args(i, devices[i], port), ends[2].IP.String())...).CombinedOutput()
				if err != nil && strings.Contains(string(out), "Couldn't connect") && try < 100 {
					time.Sleep(100 * time.Millisecond) // the server is only starting
					continue
				}
				t.Logf("sender %d: %v\n%s", i, err, out)
				failed[i] = err
				s.packets[i] = uint64(averageOf(out) * 1e9 * span.Seconds() / (8 * 1024))
				return
			}
		})
	}
	running.Wait()
	if labenv.Kernel(t) != labenv.Linux7 {
		onlyInitial(t, ends, devices, failed)
		return s
	}
	if failed[0] != nil || failed[1] != nil {
		t.Errorf("the senders failed: %v", failed)
	}
	arrived := softCounter(t, devices[2], "rcvd_pkts") - softCounter(t, devices[2], "duplicate_request") - softCounter(t, devices[2], "out_of_seq_request")
	s.again = softCounter(t, devices[0], "sent_pkts") + softCounter(t, devices[1], "sent_pkts") - arrived
	t.Logf("%s", ends[2].Queue(t))
	return s
}

// onlyInitial checks that the kernel's RoCE has no socket in the namespaces, that both senders have failed, and that
// no packet has left or arrived.
func onlyInitial(t *testing.T, ends []*testenv.End, devices [3]string, failed [2]error) {
	t.Helper()
	for i, e := range ends {
		if sockets := e.Run(t, "ss", "-Huln", "sport", "=", fmt.Sprintf(":%d", wire.Port)); sockets != "" {
			t.Errorf("the kernel's RoCE listens in the namespace of %s: %s", devices[i], sockets)
		}
		sent, received := softCounter(t, devices[i], "sent_pkts"), softCounter(t, devices[i], "rcvd_pkts")
		if sent != 0 || received != 0 {
			t.Errorf("%s has sent %d packets and received %d", devices[i], sent, received)
		}
	}
	for i, err := range failed {
		if err == nil {
			t.Errorf("sender %d has not failed", i)
		}
	}
}

// softRoCEAt makes a device of the kernel's RoCE in software in the namespace of an end. The caller removes it.
func softRoCEAt(t *testing.T, e *testenv.End, device string) string {
	t.Helper()
	e.Do(t, func() {
		if err := netlink.RdmaLinkAdd(device, "rxe", e.Ifname); err != nil {
			t.Fatalf("make %s on %s: %v", device, e.Ifname, err)
		}
	})
	return device
}

// softGID waits for the GID of an end's IPv4 address, and returns its index.
func softGID(t *testing.T, device string, e *testenv.End) (index string) {
	t.Helper()
	a := e.IP.As4()
	want := fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", a[0], a[1], a[2], a[3])
	testenv.Wait(t, testenv.Within(20*time.Second), "the GID of "+device, func() bool {
		for i := range 16 {
			text, _ := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/1/gids/%d", device, i))
			if strings.TrimSpace(string(text)) == want {
				index = strconv.Itoa(i)
			}
		}
		return index != ""
	})
	return index
}

// averageOf returns the average of ib_write_bw's table in Gbit/s, 0 if there is none.
func averageOf(out []byte) (average float64) {
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) >= 5 && f[0] == "16384" {
			average, _ = strconv.ParseFloat(f[3], 64)
		}
	}
	return average
}

// softCounter reads a counter of a device.
func softCounter(t *testing.T, device, name string) uint64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/class/infiniband", device, "ports/1/hw_counters", name))
	testenv.Must(t, err)
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	testenv.Must(t, err)
	return n
}
