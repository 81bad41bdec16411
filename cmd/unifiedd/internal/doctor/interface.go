package doctor

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/dispatcher"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/hostroute"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// card is an interface with the requirements of the configuration on it.
type card struct {
	*netlink.LinkAttrs
	driver, bus string
	bad         State // of a fault: Fail if the user asked for the interface
	flow        config.Flow
	hasFlow     bool
	frame       uint32
	region      *int          // the NUMA node of the region
	stack       netdev.Stack  // the interfaces that it is made of
	bond        *netlink.Bond // the bond that it is a slave of, or nil
	taken       string        // what of a running daemon has it; empty: nothing
}

func examineInterface(name string, n needs) []Check {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return []Check{fail("interface", "%v", err).with("ip link, for those there are")}
	}
	device := netdev.Of(link)
	asked := n.wants(name)
	name = device.Name // not an alternative name, which also finds the interface
	c := card{LinkAttrs: link.Attrs(), bad: Warn, frame: uint32(n.Region.Frame), region: n.Region.Node, taken: n.taken[name]}
	c.driver, c.bus = driver(name, link)
	if asked || n.wants(name) {
		c.bad = Fail
	}
	c.flow, c.hasFlow = n.flowOn(name)
	if c.bad != Fail && c.Flags&net.FlagUp == 0 {
		return []Check{ok("state", "driver %s, down; not requested, so not examined further", c.driver)}
	}
	if err := c.findStack(link); err != nil {
		return []Check{unknown("interface", "%v", err)}
	}
	checks := append([]Check{c.state(), c.link(device), c.nativeXDP(), c.zeroCopy(), c.queues(), c.steering(), c.mtu(), c.program(), c.defaultRoute(), c.node()},
		c.offloads()...)
	checks = append(append(append(checks, c.loopback()...), c.bonded()...), c.functions(n)...)
	return append(checks, c.roce()...)
}

// driver returns the names of an interface's driver and bus address, such as 0000:00:03.0. For an
// interface without a driver it returns the kind.
func driver(name string, link netlink.Link) (driver, bus string) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return link.Type(), ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		return link.Type(), ""
	}
	return unix.ByteSliceToString(info.Driver[:]), unix.ByteSliceToString(info.Bus_info[:])
}

// link reports the header that packets begin with. Flows to RDMA accept only Ethernet.
func (c card) link(d netdev.Device) Check {
	const name = "link type"
	switch {
	case !d.Known:
		return ok(name, "%v", d.Unknown()).as(c.bad).with("use the interface below it")
	case d.Link == linktype.Ethernet:
		return ok(name, "%v", d.Link)
	case c.hasFlow && c.flow.Kind() == config.KindNetworkRDMA:
		return ok(name, "%v", d.NeedEthernet("flow "+c.flow.Name)).as(c.bad).with("capture it to a file")
	}
	return ok(name, "%v: packets begin with the IP header; captures and filters know that, RoCE, mirror and flows to RDMA need Ethernet", d.Link)
}

func (c card) state() Check {
	const name = "state"
	switch {
	case c.Flags&net.FlagUp == 0:
		return ok(name, "driver %s, down", c.driver).as(c.bad).with("ip link set dev %s up", c.Name)
	case c.OperState == netlink.OperDown || c.OperState == netlink.OperLowerLayerDown:
		return ok(name, "driver %s, up, but no carrier", c.driver).as(c.bad).with("look at the cable, or at the other end")
	}
	return ok(name, "driver %s, up", c.driver)
}

func (c card) nativeXDP() Check {
	const name = "native XDP"
	features, err := xdpFeatures(c.Index)
	switch {
	case err != nil:
		return unknown(name, "Linux 6.3 and later report it; the daemon tries it (%v)", err)
	case features&xdpBasic == 0 || features&xdpRedirect == 0:
		return warn(name, "the driver has none: the XDP program runs after the kernel has made its own packet, slowly").
			with("%s", c.instead("use a card whose driver has XDP"))
	case c.stack.Bond:
		return ok(name, "in the drivers of the slaves, which is no use to a flow on the bond")
	}
	return ok(name, "%s", describeXDP(features))
}

// describeXDP describes the driver's XDP features beyond redirect.
func describeXDP(features uint64) string {
	detail := "in the driver"
	if features&xdpRxSG != 0 {
		return detail + ", also for packets of several buffers"
	}
	return detail + ", for packets which fit one buffer"
}

// queues compares the interface's receive queues with those the flow binds.
func (c card) queues() Check {
	const name = "queues"
	ch, err := askChannels(c.Index)
	if err != nil || ch.rx == 0 {
		ch = channels{rx: uint64(max(c.NumRxQueues, 1)), tx: uint64(max(c.NumTxQueues, 1))}
	}
	detail := fmt.Sprintf("%d to receive, %d to send", ch.rx, ch.tx)
	if ch.most > ch.rx {
		detail += fmt.Sprintf(" (up to %d)", ch.most)
	}
	if !c.hasFlow || c.flow.From.Queues == nil {
		return ok(name, "%s", detail)
	}
	return c.judgeQueues(detail, ch.rx)
}

func (c card) judgeQueues(detail string, rx uint64) Check {
	const name = "queues"
	last := slices.Max(c.flow.From.Queues)
	switch bound := uint64(len(c.flow.From.Queues)); {
	case uint64(last) >= rx:
		return fail(name, "%s: there is no queue %d for flow %s", detail, last, c.flow.Name).
			with("ethtool -L %s combined %d, or list fewer queues", c.Name, last+1)
	case bound < rx:
		return warn(name, "%s: flow %s takes %d, the traffic of the others stays with the kernel", detail, c.flow.Name, bound).
			with("leave queues out of the flow to have all")
	}
	return ok(name, "%s", detail)
}

// overhead is the length of an Ethernet frame beyond the MTU: addresses, type, two VLAN tags.
const overhead = 14 + 2*4

// mtu compares the longest packet with the size of a frame.
func (c card) mtu() Check {
	const name = "MTU"
	longest, room := uint64(c.MTU)+overhead, uint64(c.shape().Capacity(c.frame))
	if longest <= room {
		return ok(name, "%d; packets of up to %d bytes fit a frame", c.MTU, room)
	}
	return warn(name, "%d; packets above %d bytes take several frames, or stay with the kernel where it cannot have that", c.MTU, room).
		with("ip link set dev %s mtu %d, if longer packets are not wanted", c.Name, room-overhead)
}

// shape returns the layout of frames in which the flow receives packets. With the slot layout, a
// block header precedes each packet.
func (c card) shape() umem.Shape {
	if c.hasFlow && c.flow.To.Layout == config.LayoutSlot {
		return umem.Shape{Headroom: slotAlign + pcapng.PacketHeaderLen - umem.PacketHeadroom}
	}
	return umem.Shape{}
}

// program checks the XDP program on the interface. The daemon does not replace it.
func (c card) program() Check {
	const name = "XDP program"
	x := c.Xdp
	if x == nil || !x.Attached {
		return ok(name, "none attached")
	}
	who := fmt.Sprintf("id %d", x.ProgId)
	if given := programName(x.ProgId); given != "" {
		who += " " + given
	}
	if c.taken != "" {
		return ok(name, "that of %s (%s)", c.taken, who)
	}
	if c.hasFlow && c.flow.From.Beside != "" && dispatcher.Is(x.ProgId) {
		return c.joins(who)
	}
	off := map[uint32]string{nl.XDP_ATTACHED_DRV: "xdpdrv", nl.XDP_ATTACHED_SKB: "xdpgeneric"}[x.AttachMode]
	if off == "" {
		off = "xdp"
	}
	return ok(name, "another is attached (%s), and stays: the daemon does not replace it", who).as(c.bad).
		with("stop the program which attached it, or: ip link set dev %s %s off", c.Name, off)
}

// joins reports whether the flow can join libxdp's dispatcher.
func (c card) joins(who string) Check {
	const name = "XDP program"
	if err := dispatcher.Probe(); err != nil {
		return fail(name, "libxdp's dispatcher is attached (%s), which flow %s cannot join: %v", who, c.flow.Name, err).
			with("use another kernel, or unload what is there: xdp-loader unload %s --all", c.Name)
	}
	return ok(name, "libxdp's dispatcher is attached (%s), and flow %s joins it", who, c.flow.Name)
}

// defaultRoute checks for the default route: the host does not receive packets that AF_XDP takes.
func (c card) defaultRoute() Check {
	const name = "default route"
	carries, err := hostroute.Default(c.Name)
	switch {
	case err != nil:
		return unknown(name, "%v", err)
	case !carries:
		return ok(name, "not over this interface")
	case !c.hasFlow:
		return warn(name, "over this interface: what a flow takes from it, the host no longer receives").
			with("filter the flow, or say take_over: true (capture --take=anyway)")
	case !c.flow.From.TakesAll():
		return ok(name, "over this interface; flow %s takes only what its filter accepts", c.flow.Name)
	case c.flow.From.TakeOver:
		return warn(name, "over this interface, and flow %s takes all of it: the host loses its network", c.flow.Name)
	}
	return fail(name, "over this interface, and flow %s has no filter: the host would lose its network", c.flow.Name).
		with("give the flow a filter, or say take_over: true")
}

// loopback says what a flow on a loopback interface takes from the host's programs.
func (c card) loopback() []Check {
	const name = "loopback"
	takes := "programs of this host do not reach each other at 127.0.0.1 and ::1 meanwhile"
	from := &c.flow.From
	engine, _ := c.flow.ChosenEngine()
	switch {
	case c.Flags&net.FlagLoopback == 0:
		return nil
	case !c.hasFlow:
		return []Check{ok(name, "a flow without a filter takes all packets: %s (engine: packet has copies)", takes)}
	case from.Mirror != "" || engine == config.EnginePacket:
		return []Check{ok(name, "flow %s has copies", c.flow.Name)}
	case !from.TakesAll():
		return []Check{ok(name, "flow %s takes only what its filter accepts", c.flow.Name)}
	}
	return []Check{warn(name, "flow %s takes all packets: %s", c.flow.Name, takes).with("give the flow a filter, or say engine: packet")}
}

// node compares the card's NUMA node with the region's.
func (c card) node() Check {
	const name = "NUMA node"
	at, known := readNumber("/sys/bus/pci/devices/" + c.bus + "/numa_node")
	if c.bus == "" || !known || at < 0 {
		return ok(name, "of no node in particular")
	}
	if c.region != nil && int64(*c.region) != at {
		return warn(name, "%d, but the region is on node %d: every packet crosses between them", at, *c.region).
			with("set region.node: %d", at)
	}
	return ok(name, "%d", at)
}

// offloads checks the offloads that change what a capture contains.
func (c card) offloads() []Check {
	active, err := askOffloads(c.Index)
	if err != nil {
		return []Check{unknown("offloads", "%v", err)}
	}
	var merged []string
	for _, f := range []string{"rx-lro", "rx-gro-hw"} {
		if active[f] {
			merged = append(merged, f)
		}
	}
	return []Check{c.merging(merged), c.stripping(active["rx-vlan-hw-parse"], active["rx-vlan-stag-hw-parse"])}
}

// merging checks whether the card makes one packet of several before XDP sees them. GRO in software
// runs after XDP and does not matter.
func (c card) merging(by []string) Check {
	if len(by) == 0 {
		return ok("merging of packets", "off in the card")
	}
	return warn("merging of packets", "%s: the card joins packets before they are captured", strings.Join(by, ", ")).
		with("ethtool -K %s %s off", c.Name, strings.Join(by, " off "))
}

// stripping checks whether the card removes VLAN tags from packets. During a capture the card
// leaves 802.1Q tags in place; for 802.1ad tags there is no such flag.
func (c card) stripping(tags, serviceTags bool) Check {
	const name = "VLAN tags"
	switch {
	case c.driver == "veth": // announces stripping, but passes tags unchanged
	case serviceTags:
		return warn(name, "the card takes those of 802.1ad off: they are neither captured nor can be filtered by").
			with("ethtool -K %s rx-vlan-stag-hw-parse off", c.Name)
	case tags:
		return ok(name, "the card takes them off, which a capture has it stop while it runs (status has vlan_tags_lost where it cannot)")
	}
	return ok(name, "arrive in the packet")
}
