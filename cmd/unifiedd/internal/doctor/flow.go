package doctor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/files"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/internal/osthread"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// addFlows examines the other objects that the configuration names: files to read, addresses, RDMA
// devices, users.
func (r *Report) addFlows(n needs) {
	if !n.given {
		return
	}
	r.add("files", readable(n.Config))
	var addresses []Check
	if n.Metrics.Listen != "" {
		addresses = append(addresses, address("metrics.listen", "tcp", n.Metrics.Listen))
	}
	var devices, users, engines, classes, routes []Check
	for i := range n.Flows {
		f := &n.Flows[i]
		named := func(key string) string { return fmt.Sprintf("flow %s: %s", f.Name, key) }
		if f.Kind() == config.KindNetworkStorage && f.From.Engine != config.EngineXDP {
			engines = append(engines, engine(named("from.engine"), f))
		}
		if f.From.Listen != "" {
			addresses = append(addresses, address(named("from.listen"), "tcp", f.From.Listen))
		}
		if f.To.Listen != "" {
			addresses = append(addresses, address(named("to.listen"), "tcp", f.To.Listen))
		}
		if f.From.RDMA != "" {
			devices = append(devices, rdmaNamed(named("from.rdma"), f.From.RDMA))
		}
		for _, p := range f.From.Paths {
			addresses = append(addresses, address(named("from.paths"), "tcp", p.Listen))
			devices = append(devices, rdmaNamed(named("from.paths"), p.RDMA))
		}
		for i := range f.To.Peers {
			p := &f.To.Peers[i]
			if len(p.Paths) > 0 {
				routes = append(routes, pathRoutes(named("peer "+p.Name), f.To.RDMA, p)...)
			}
			for _, one := range p.Paths {
				devices = append(devices, rdmaNamed(named("peer "+p.Name), one.RDMA))
			}
		}
		if f.From.Class != (config.Class{}) {
			classes = append(classes, priority(named("from.rdma"), f.From.RDMA, f.From.Class))
		}
		for i := range f.To.Peers {
			if c := f.To.ClassOf(&f.To.Peers[i]); c != (config.Class{}) {
				classes = append(classes, priority(named("peer "+f.To.Peers[i].Name), f.To.RDMA, c))
			}
		}
		if f.To.Class != (config.Class{}) && len(f.To.Peers) == 0 {
			classes = append(classes, priority(named("to.rdma"), f.To.RDMA, f.To.Class))
		}
		if f.To.RDMA != "" {
			devices = append(devices, rdmaNamed(named("to.rdma"), f.To.RDMA))
		}
		if f.To.Owner != "" {
			users = append(users, owner(named("to.owner"), f.To))
		}
	}
	for _, s := range n.Attach.States {
		if s.Remote.RDMA != "" {
			addresses = append(addresses, address(fmt.Sprintf("state %s: listen", s.Name), "tcp", s.Remote.Listen))
			devices = append(devices, rdmaNamed(fmt.Sprintf("state %s: rdma", s.Name), s.Remote.RDMA))
		}
	}
	r.add("engines", engines)
	r.addMulticast(n)
	r.add("addresses", addresses)
	r.add("RDMA devices of flows", devices)
	r.add("priorities", classes)
	r.add("paths", routes)
	r.add("owners of files", users)
	r.addGroups(n)
	r.addAttach(n)
	r.addOrders(n)
}

// engine says which engine a flow has, and why. It tries whether the process may open a packet socket.
func engine(name string, f *config.Flow) Check {
	e, why := f.ChosenEngine()
	if e == config.EngineXDP {
		return ok(name, "%s: %s", e, why)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail(name, "open a packet socket: %v", err).with("run as root, or grant CAP_NET_RAW")
	}
	_ = unix.Close(fd)
	if why == "" {
		why = "as configured"
	}
	return ok(name, "%s: %s; a packet socket opens, and the host keeps what it copies", e, why)
}

// readable reports for each file whether the daemon's user may open it.
func readable(c *config.Config) (checks []Check) {
	all := files.Of(c)
	err := asUser(c.User, func(uid uint32) {
		for _, f := range all {
			verb := "readable"
			if f.Write {
				verb = "writable"
			}
			if remedy, err := f.Access(uid); err != nil {
				checks = append(checks, fail(f.Setting, "%v", err).with("%s", remedy))
			} else {
				checks = append(checks, ok(f.Setting, "%s is %s", f.Path, verb))
			}
		}
	})
	if err != nil {
		return append(checks, fail("user", "%v", err))
	}
	return checks
}

// asUser runs f on a thread with the file permissions of the daemon's user, if this process may
// take them.
func asUser(name string, f func(uid uint32)) error {
	self := uint32(os.Geteuid())
	if name == "" || self != 0 {
		f(self)
		return nil
	}
	uid, gid, groups, err := privsep.LookUp(name)
	if err != nil {
		return err
	}
	osthread.Run(func() {
		if err = threadUser(uid, gid, groups); err == nil {
			f(uid)
		}
	})
	return err
}

// threadUser gives the thread the file permissions of a user.
func threadUser(uid, gid uint32, groups []uint32) error {
	var first *uint32
	if len(groups) > 0 {
		first = &groups[0]
	}
	if err := setGroups(len(groups), first); err != nil {
		return fmt.Errorf("take the groups of user %d: %w", uid, err)
	}
	if err := errors.Join(unix.Setfsgid(int(gid)), unix.Setfsuid(int(uid))); err != nil {
		return fmt.Errorf("take the rights of user %d: %w", uid, err)
	}
	return nil
}

// address reports whether a program of this machine can listen at an address.
func address(name, kind, at string) Check {
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return fail(name, "%v", err) // the configuration's checks have reported it
	}
	l, err := net.Listen(kind, net.JoinHostPort(host, "0"))
	if err != nil {
		return fail(name, "%s: %v", at, err).with("name an address of this machine, or leave the host out: %s", strings.TrimPrefix(at, host))
	}
	_ = l.Close()
	return ok(name, "%s can be listened at", at)
}

// rdmaNamed reports whether an RDMA device exists.
func rdmaNamed(name, device string) Check {
	iface, soft := config.SoftDevice(device)
	if !soft {
		m, err := verbs.Examine()
		if err != nil {
			return fail(name, "%s: %v", device, err)
		}
		var all []string
		for _, d := range m.Devices {
			if all = append(all, d.Name); d.Name == device {
				return ok(name, "%s is there", device)
			}
		}
		there := "there is none"
		if all != nil {
			there = "there are: " + strings.Join(all, ", ")
		}
		return fail(name, "%s: no such RDMA device (%s)", device, there).with("say roce:INTERFACE for RoCE in software")
	}
	link, err := netlink.LinkByName(iface)
	switch {
	case err != nil:
		return fail(name, "%s: interface %s: %v", device, iface, err).with("ip link, for those there are")
	case link.Attrs().Flags&net.FlagUp == 0:
		return fail(name, "%s: interface %s is down", device, iface).with("ip link set %s up", iface)
	}
	return ok(name, "%s: interface %s is up", device, iface)
}

// owner reports whether the process can give files to their configured owner.
func owner(name string, to config.To) Check {
	uid, gid, err := segment.OwnerOf(to)
	if err != nil {
		return advised(fail, name, err.Error())
	}
	who := func(id int) string {
		if id < 0 {
			return "as made"
		}
		return strconv.Itoa(id)
	}
	return ok(name, "%s is user %s, group %s", to.Owner, who(uid), who(gid))
}
