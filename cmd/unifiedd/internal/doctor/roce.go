package doctor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/network"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// roceFacts are the facts that decide whether RoCE in software can run on an interface.
type roceFacts struct {
	gids    []rdma.GIDEntry
	err     error  // why they are not available
	others  string // RDMA devices of the interface
	sockets bool   // a program of this machine has the UDP port
}

// rocePort is the destination port of RoCE v2: IANA's "roce", UDP.
const rocePort = 4791

// roce reports whether RoCE v2 in software (roce:IFACE) can run on the interface. A missing
// prerequisite gives no warning, since the user did not ask for RoCE. The exception is an interface
// that the user named and another program uses for RoCE.
func (c card) roce() []Check {
	f := roceFacts{sockets: !exists("/sys/module/rdma_rxe") && hasUDP(rocePort)}
	f.gids, f.err = gidsOf(c.Name)
	ports, _ := verbs.PortsOf(c.Name) // the section on RDMA reports ports that cannot be read
	var names []string
	for _, p := range ports {
		names = append(names, p.Device)
	}
	f.others = strings.Join(unique(names), ", ")
	return []Check{c.judgeRoCE(f), c.judgePort(f)}
}

// gidsOf returns the addresses from which packets could be sent.
func gidsOf(iface string) ([]rdma.GIDEntry, error) {
	i, err := network.Open(iface)
	if err != nil {
		return nil, err
	}
	return i.GIDs(), i.Close()
}

func (c card) judgeRoCE(f roceFacts) Check {
	const name = "RoCE in software"
	fits := rdma.FitsInterface(c.MTU)
	switch {
	case errors.Is(f.err, network.ErrNotEthernet):
		return ok(name, "not here: the interface is not Ethernet's")
	case f.err != nil:
		return unknown(name, "%v", f.err)
	case len(f.gids) == 0:
		return ok(name, "not without an IP address").with("ip address add ADDRESS/LENGTH dev %s", c.Name)
	case fits == 0:
		return ok(name, "not with an MTU of %d", c.MTU).with("ip link set dev %s mtu %d", c.Name, roceMTU)
	case c.Xdp != nil && c.Xdp.Attached:
		return ok(name, "not while another XDP program is attached").with("see XDP program")
	}
	found := ok(name, "roce:%s, %v bytes in a packet; %s", c.Name, fits, addresses(f.gids))
	if fits < rdma.MTU4096 {
		found = found.with("ip link set dev %s mtu %d, for %v bytes in a packet, if the others on the network take that", c.Name, roceMTU, rdma.MTU4096)
	}
	return found
}

// roceMTU is the MTU of an interface that has room for the longest packet: rdma.FitsInterface.
const roceMTU = 4096 + 80

func addresses(gids []rdma.GIDEntry) string {
	var texts []string
	for _, e := range gids {
		texts = append(texts, fmt.Sprintf("GID %d %v", e.Index, e.GID))
	}
	return strings.Join(texts, ", ")
}

// judgePort checks which program receives RoCE packets. Only one can: packets that an AF_XDP socket
// receives reach no other program, and packets that the card's own RoCE receives reach no AF_XDP
// socket.
func (c card) judgePort(f roceFacts) Check {
	const name = "UDP port 4791"
	state := OK
	if c.bad == Fail {
		state = Warn
	}
	switch {
	case f.others != "":
		return ok(name, "%s has what comes to it on this interface; roce:%s and %s do not go together", f.others, c.Name, f.others).as(state).
			with("use %s instead of roce:%s; or, of Soft-RoCE: rdma link delete %s", f.others, c.Name, f.others)
	case f.sockets:
		return ok(name, "a program has a socket there, which hears nothing of this interface while roce:%s runs", c.Name).as(state).
			with("ss -ulnp sport = :%d, for who it is", rocePort)
	}
	return ok(name, "no program uses it on this interface")
}

// hasUDP reports whether a socket of the calling thread's network namespace is bound to the port.
// It reads the local address in the second column: udp4_format_sock, and its like for IPv6.
func hasUDP(port uint64) bool {
	for _, table := range []string{"udp", "udp6"} {
		for _, line := range lines("/proc/thread-self/net/" + table) {
			f := strings.Fields(line)
			if len(f) < 2 {
				continue
			}
			_, at, _ := strings.Cut(f[1], ":")
			if n, err := strconv.ParseUint(at, 16, 16); err == nil && n == port {
				return true
			}
		}
	}
	return false
}
