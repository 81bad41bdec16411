package doctor

import (
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/cgroup"
)

// inContainer returns what shows that this process is in a container: a mark that container managers leave. Empty:
// nothing does.
func inContainer() string {
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv", "/run/systemd/container"} {
		if exists(mark) {
			return mark
		}
	}
	if kind := os.Getenv("container"); kind != "" {
		return "container=" + kind
	}
	return ""
}

// container says whether this is a container.
func container() Check {
	const name = "container"
	if mark := inContainer(); mark != "" {
		return ok(name, "yes, by %s: limits, devices and huge pages are the manager's to give", mark)
	}
	return ok(name, "no")
}

// addContainer adds the section about limits of the container or control group.
func (r *Report) addContainer(n needs) {
	checks := n.groupLimits(cgroup.CPUs, cgroup.HugePages)
	if inContainer() != "" {
		links, err := netlink.LinkList()
		checks = append(checks, hostNetwork(links, err))
	}
	if len(checks) > 0 {
		r.add("container", checks)
	}
}

// groupLimits checks the limits of the control group, as far as there are some.
func (n needs) groupLimits(cpus func() (cgroup.Limit, bool), pages func(uint64) (cgroup.Limit, bool)) (checks []Check) {
	if l, limited := cpus(); limited {
		checks = append(checks, n.quota(l))
	}
	for _, need := range flows.RegionConfig(n.Config).Needs() {
		size := need.Pages.Bytes()
		l, limited := pages(size)
		name := need.Pages.String() + " limit"
		switch missing := need.Count()*size > l.Left; {
		case !limited:
		case missing:
			checks = append(checks, ok(name, "%d more may be taken, %d needed", l.Left/size, need.Count()).as(n.bad()).
				with("raise %s (--ulimit does not), or lower region.size", l.File))
		default:
			checks = append(checks, ok(name, "%d more may be taken, %d needed", l.Left/size, need.Count()))
		}
	}
	return checks
}

// quota compares a quota of processors' time with the workers. A group that has used its quota is stopped as a whole
// until the next period, which is 100 ms by default: a worker that spins gets there.
func (n needs) quota(l cgroup.Limit) Check {
	const name = "CPU quota"
	spin := 0
	for _, w := range n.Workers {
		if w.Wait == config.WaitSpin {
			spin++
		}
	}
	detail := fmt.Sprintf("%.2g CPUs, by %s", l.CPUs, l.File)
	if spin > 0 && l.CPUs < float64(spin+1) || l.CPUs < 1 {
		return warn(name, "%s, for %d spinning workers and all else: when it is used up, all workers stand still for up to 100 ms", detail, spin).
			with("give CPUs instead of a quota (--cpuset-cpus, without --cpus), or at least %d", spin+1)
	}
	return ok(name, "%s", detail)
}

// hostNetwork checks whether there is anything but links that container managers make.
func hostNetwork(links []netlink.Link, err error) Check {
	const name = "network"
	if err != nil {
		return unknown(name, "%v", err)
	}
	var names []string
	for _, l := range links {
		switch l.Type() {
		case "veth", "ipvlan", "macvlan", "tuntap", "dummy", "ipip", "sit", "gre", "gretap", "erspan", "ip6tnl", "ip6gre", "vti", "vti6":
			names = append(names, l.Attrs().Name)
		default:
			if l.Attrs().EncapType != "loopback" {
				return ok(name, "there are interfaces besides those of a container, such as %s", l.Attrs().Name)
			}
		}
	}
	return ok(name, "of its own (%s); for a card of the machine: --network host, or ip link set IFACE netns PID", strings.Join(append(names, "lo"), ", "))
}
