package roce

import (
	"bufio"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestVLAN: two queue pairs exchange messages on a VLAN. The device drops packets without the
// VLAN's tag or with another one.
func TestVLAN(t *testing.T) {
	labenv.Guest(t)
	if out, err := exec.Command("modprobe", "8021q").CombinedOutput(); err != nil {
		t.Fatalf("load the module 8021q: %v\n%s", err, out)
	}
	testenv.Leaks(t)
	pair := testenv.NewPair(t, testenv.PairOptions{})
	for i, e := range []*testenv.End{&pair.A, &pair.B} {
		e.IP = netip.AddrFrom4([4]byte{10, 77, 5, byte(i + 1)})
		e.Run(t, "ip", "link", "add", "v5", "link", e.Ifname, "type", "vlan", "id", "5")
		e.Run(t, "ip", "address", "add", e.IP.String()+"/24", "dev", "v5")
		e.Run(t, "ip", "link", "set", "v5", "up")
	}
	g := newRigOn(t, pair, rigOptions{})
	a, b := g.connected(config(rdma.RC), rdma.MTU1024)
	for i := range uint64(20) {
		b.receive(i, b.sge(0, 3000))
		a.send(rdma.SendRequest{ID: i, Op: rdma.Send}, a.sge(0, 3000))
		b.want(i, rdma.Received, rdma.Success)
		a.want(i, rdma.SendDone, rdma.Success)
	}
	to := g.sides[1].newEnd(config(rdma.UD))
	g.must(to.lead(rdma.Attributes{Port: 1, QKey: qkey}))
	to.receive(1, to.sge(0, 100))
	sender := testenv.NewSender(t, &pair.A)
	send := func(on tags) {
		if _, err := sender.Send(g.datagram(to, on)); err != nil {
			t.Fatal(err)
		}
	}
	for i, on := range []tags{{}, {{Type: 0x8100, TCI: 6}}} {
		begin := time.Now()
		send(on)
		testenv.Wait(t, 10*time.Second, "a packet on another VLAN to be dropped", func() bool {
			if time.Since(begin) > time.Second { // the kernel may lose one
				t.Logf("%v: sent again:%s", on, to.dev.show())
				begin = time.Now()
				send(on)
			}
			return count(to.dev, "dropped_other_vlan") > uint64(i)
		})
	}
	if n, err := to.cq.Poll(make([]rdma.WorkCompletion, 1)); n != 0 || err != nil {
		t.Errorf("packets on other VLANs gave %d completions, %v", n, err)
	}
	send(tags{{Type: 0x8100, TCI: 5}})
	to.want(1, rdma.Received, rdma.Success)
}

// TestPriority: packets on a VLAN have the queue pair's service level as the priority of their tag.
func TestPriority(t *testing.T) {
	labenv.Guest(t)
	if out, err := exec.Command("modprobe", "8021q").CombinedOutput(); err != nil {
		t.Fatalf("load the module 8021q: %v\n%s", err, out)
	}
	testenv.Leaks(t)
	pair := testenv.NewPair(t, testenv.PairOptions{})
	for i, e := range []*testenv.End{&pair.A, &pair.B} {
		e.IP = netip.AddrFrom4([4]byte{10, 77, 5, byte(i + 1)})
		e.Run(t, "ip", "link", "add", "v5", "link", e.Ifname, "type", "vlan", "id", "5", "egress-qos-map", "0:2")
		e.Run(t, "ip", "address", "add", e.IP.String()+"/24", "dev", "v5")
		e.Run(t, "ip", "link", "set", "v5", "up")
	}
	tcpdump := pair.B.Command(testenv.Tool(t, "tcpdump"), "-l", "-n", "-e", "-v", "-i", pair.B.Ifname, "vlan and udp port 4791")
	out, err := tcpdump.StdoutPipe()
	testenv.Must(t, err)
	said, err := tcpdump.StderrPipe()
	testenv.Must(t, err)
	testenv.Must(t, tcpdump.Start())
	t.Cleanup(func() { _ = tcpdump.Process.Kill(); _ = tcpdump.Wait() })
	for s := bufio.NewScanner(said); s.Scan() && !strings.Contains(s.Text(), "listening on"); {
	}
	lines := bufio.NewScanner(out)
	g := &rig{TB: t, timeout: 16, pair: pair}
	a := g.newSide(&pair.A, rigOptions{}).newEnd(config(rdma.UD))
	g.must(a.lead(rdma.Attributes{Port: 1, QKey: qkey}))
	for sl, want := range map[uint8]string{0: "p 2", 5: "p 5"} {
		h := testenv.Opened(g, func() (rdma.AddressHandle, error) {
			return a.pd.NewAddressHandle(rdma.Address{GID: rdma.GIDOf(pair.B.IP), GIDIndex: uint16(a.gid.Index), Port: 1, SL: sl, TrafficClass: 104})
		})
		a.send(rdma.SendRequest{ID: 1, Op: rdma.Send, Handle: h.ID(), RemoteQPN: 77, RemoteQKey: qkey}, a.sge(0, 100))
		a.want(1, rdma.SendDone, rdma.Success)
		for text := ""; !strings.Contains(text, "vlan 5, "+want+",") || !strings.Contains(text, "tos 0x68"); text = lines.Text() {
			if !lines.Scan() {
				t.Fatal("tcpdump has ended")
			}
			t.Log(lines.Text())
		}
	}
}
