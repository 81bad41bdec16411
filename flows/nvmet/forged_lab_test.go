//go:build verbs && cgo

package nvmet

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	rocecm "github.com/unifiedd/unifiedd/rdma/roce/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
	"github.com/unifiedd/unifiedd/umem"
)

// The addresses of a wire: a card of the guest with the kernel's Soft-RoCE, and its opposite with
// RoCE in software.
const (
	kernelSide = "10.79.1.1"
	softSide   = "10.79.1.2"
)

// TestForgedRequestAndKernel: forged REQs do not end a connection of the kernel. The kernel's
// connection manager answers a probe for a connection that it has. The side that requested the
// connection answers by an RTU; the other side answers nothing. For a connection that it does not
// know, the kernel answers by a DREP.
func TestForgedRequestAndKernel(t *testing.T) {
	labenv.Guest(t)
	t.Run("initiator", kernelAsks)
	t.Run("target", kernelIsAsked)
}

// kernelSoft makes a wire with Soft-RoCE at this end. It returns the namespace and the interface of
// the other end.
func kernelSoft(t *testing.T) (device string, other *testenv.End, there *victim) {
	t.Helper()
	device = labenv.SoftRoCE(t, "virtio0", kernelSide+"/24")
	ns := labenv.Opposite(t, labenv.Wire{Card: "virtio0", Here: kernelSide, There: softSide})
	here, err := netlink.LinkByName("virtio0")
	testenv.Must(t, err)
	ip := netip.MustParseAddr(softSide)
	other = &testenv.End{Namespace: ns, Ifname: "virtio1", IP: ip}
	ns.Do(t, func() {
		link, err := netlink.LinkByName("virtio1")
		testenv.Must(t, err)
		other.MAC, other.Index = link.Attrs().HardwareAddr, link.Attrs().Index
	})
	return device, other, &victim{ip, other.MAC, here.Attrs().HardwareAddr}
}

// guidOf returns the GUID of a device of the kernel.
func guidOf(t *testing.T, device string) (guid uint64) {
	t.Helper()
	text, err := os.ReadFile("/sys/class/infiniband/" + device + "/node_guid")
	testenv.Must(t, err)
	if _, err := fmt.Sscanf(strings.ReplaceAll(strings.TrimSpace(string(text)), ":", ""), "%x", &guid); err != nil {
		t.Fatal(err)
	}
	return guid
}

// claims sends REQs that claim every queue pair that Soft-RoCE may have made, to a port without a
// listener. It waits until the probes for them have ended.
func claims(t *testing.T, device string, to *victim, soft rdma.Device) {
	t.Helper()
	here, err := netlink.LinkByName("virtio0")
	testenv.Must(t, err)
	send, guid := senderHere(t, here.Attrs().Index), guidOf(t, device)
	for qpn := range uint32(300) {
		testenv.Must(t, send((&forgery{netip.MustParseAddr(kernelSide), 0x1000 + qpn, 2 + qpn, guid, 9999}).packet(t, to)))
		time.Sleep(time.Millisecond)
	}
	var counted map[string]uint64
	testenv.Wait(t, testenv.Within(2*rocecm.ProbeTries*rocecm.ProbeWait), "the kernel to be asked", func() bool {
		counted = countersOf(soft)
		return counted["cm_probes"] > 0 && counted["cm_probes_alive"]+counted["cm_probes_gone"] >= counted["cm_probes"]
	})
	t.Logf("%d REQs claimed a queue pair; %d probes, %d alive, %d gone; RTUs %d, DREPs %d", counted["cm_stale"], counted["cm_probes"], counted["cm_probes_alive"],
		counted["cm_probes_gone"], counted["cm_received_rtu"], counted["cm_received_drep"])
	if counted["cm_probes_gone"] != 0 {
		t.Error("the kernel has the connections, and is taken to have none")
	}
}

// answersStranger: the kernel answers a DREQ for a connection that it does not know by a DREP.
func answersStranger(t *testing.T, other *testenv.End, to *victim, soft rdma.Device) {
	t.Helper()
	before := countersOf(soft)["cm_received_drep"]
	kernel := &victim{netip.MustParseAddr(kernelSide), to.via, other.MAC}
	m := mad.Message{Kind: mad.DREQ, Transaction: 5, Local: 0x5555, Remote: 0x6666}
	b := kernel.datagram(t, other.IP, &m, 77)
	other.Do(t, func() {
		testenv.Must(t, senderHere(t, other.Index)(b))
	})
	testenv.Wait(t, 10*time.Second, "the kernel's DREP", func() bool { return countersOf(soft)["cm_received_drep"] > before })
}

// kernelAsks: the kernel's NVMe initiator, which requested the connection, stays connected to a
// target on RoCE in software.
func kernelAsks(t *testing.T) {
	testenv.Leaks(t)
	device, other, to := kernelSoft(t)
	r := &rig{T: t, listen: softSide + ":4420"}
	r.openRegion(frames+extents<<20, extents)
	soft, own := openSoft(r, other, r.region)
	var err error
	r.endpoint, err = stream.OpenEndpoint(soft, r.region)
	r.must(err)
	t.Cleanup(func() { r.check(r.endpoint.Close()) })
	r.manager = own
	v := r.serve(Config{Sessions: 8, Queues: 2, Depth: 64, Capsule: 4096, Subsystems: []Subsystem{{NQN: nqn, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: r.disk(16 << 20), UUID: [16]byte{1: 7, 15: 1}}}}}})
	i := r.connect("")
	path := i.path(1)
	claims(t, device, to, soft)
	r.run("dd", "if="+path, "of=/dev/null", "bs=4096", "count=16", "iflag=direct")
	if n := v.server.count.ended.Load(); n != 0 {
		t.Errorf("%d queues ended", n)
	}
	i.disconnect()
	v.rest()
}

// kernelIsAsked: a host on RoCE in software stays connected to a target on Soft-RoCE.
func kernelIsAsked(t *testing.T) {
	device, other, to := kernelSoft(t)
	r := newRigOn(t, device, kernelSide)
	v := r.serve(Config{Sessions: 8, Queues: 2, Depth: 64, Capsule: 4096, Subsystems: []Subsystem{{NQN: softNQN, Hosts: []string{softHost}, Namespaces: []Namespace{{ID: 1, Disk: r.disk(16 << 20), UUID: [16]byte{1: 8, 15: 1}}}}}})
	var soft rdma.Device
	s := newStation(r, func(s *rig, region *umem.Region) (rdma.Device, cm.Manager) {
		d, m := openSoft(s, other, region)
		soft = d
		return d, m
	})
	h := s.connects(softHost, 1, 32)
	q := h.queues[0]
	claims(t, device, to, soft)
	answersStranger(t, other, to, soft)
	q.succeeds(blocks(fabrics.OpRead, 0, 8, s.keyed(s.room(4096), 4096)))
	v.rest()
}
