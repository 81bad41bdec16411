package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
)

// addAttach examines what programs of this host need to attach: the socket, their users and their memory, what they
// can read, and, of a daemon that runs, which of them its flows wait for.
func (r *Report) addAttach(n needs) {
	if len(n.Attach.Programs) == 0 {
		return
	}
	available, _ := meminfo("MemAvailable")
	checks := []Check{attachDirectory(n.Config), writtenMemory(&n.Attach, available)}
	for i := range n.Attach.Programs {
		checks = append(checks, programUser(n.Config, &n.Attach.Programs[i], uint32(os.Geteuid()))...)
	}
	for i := range n.Flows {
		if f := &n.Flows[i]; f.To.Place == config.PlaceHere {
			offered, err := offersZeroCopy(f.From.Interface)
			checks = append(checks, exposed(f, offered, err))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	if raw, err := control.Status(ctx, n.Control.Socket); err == nil {
		checks = append(checks, waiting(raw)...)
	}
	r.add("attached programs", checks)
}

// askTime is how long a daemon that runs may take to answer.
const askTime = 2 * time.Second

// attachDirectory reports whether the daemon's user can make the socket where programs attach.
func attachDirectory(c *config.Config) (check Check) {
	const name = "attach.socket"
	dir := filepath.Dir(c.Attach.Socket)
	err := asUser(c.User, func(uid uint32) {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			check = ok(name, "the daemon makes %s at its start", dir)
		case err != nil:
			check = fail(name, "%v", err)
		case !info.IsDir():
			check = fail(name, "%s is no directory", dir).with("choose another attach.socket")
		default:
			check = ok(name, "%s is there, and the daemon's user may make the socket in it", dir)
			if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
				check = fail(name, "user %d may not make the socket in %s: %v", uid, dir, err).with("install -d -o %d -m 755 %s", uid, dir)
			}
		}
	})
	if err != nil {
		return fail(name, "%v", err)
	}
	return check
}

// daemonUser returns the number of the daemon's user. self is who examines, and would start it.
func daemonUser(c *config.Config, self uint32) (uint32, error) {
	if c.User == "" {
		return self, nil
	}
	uid, _, _, err := privsep.LookUp(c.User)
	return uid, err
}

// programUser reports whether a program's user exists, is another one than the daemon's, and reaches the socket.
func programUser(c *config.Config, p *config.Program, self uint32) []Check {
	name := "program " + p.Name
	uid, _, _, err := privsep.LookUp(p.User)
	if err != nil {
		return []Check{advised(fail, name, err.Error())}
	}
	of, err := daemonUser(c, self)
	if err != nil {
		return []Check{fail(name, "%v", err)}
	}
	var checks []Check
	switch {
	case uid == 0:
		checks = append(checks, warn(name, "user %s is root, from whom nothing protects the daemon's memory", p.User).with("give the program a user of its own"))
	case uid == of:
		checks = append(checks, warn(name, "user %s is the daemon's, too: the program could open its memory anew and write what it may only read", p.User).
			with("give the program a user of its own, or set user of the daemon"))
	default:
		checks = append(checks, ok(name, "user %s is number %d, and another than the daemon's", p.User, uid))
	}
	if os.Geteuid() != 0 && uint32(os.Geteuid()) != uid {
		return checks // only root can look with another user's rights
	}
	return append(checks, reaches(c.Attach.Socket, name, p.User)...)
}

// reaches reports if a user cannot reach the socket of a daemon that runs, or its directory.
func reaches(socket, name, user string) (checks []Check) {
	dir := filepath.Dir(socket)
	if _, err := os.Stat(dir); err != nil {
		return nil // attachDirectory tells of it
	}
	err := asUser(user, func(uid uint32) {
		if blocked := closedTo(dir); blocked != "" {
			checks = append(checks, fail(name, "user %d may not pass %s, where the socket is", uid, blocked).with("chmod o+x %s", blocked))
			return
		}
		switch err := unix.Faccessat(unix.AT_FDCWD, socket, unix.W_OK, unix.AT_EACCESS); {
		case err == nil, errors.Is(err, unix.ENOENT): // the daemon makes it for all users
		default:
			checks = append(checks, fail(name, "user %d may not connect to %s: %v", uid, socket, err).with("start the daemon again, which makes the socket for all users"))
		}
	})
	if err != nil {
		checks = append(checks, fail(name, "%v", err))
	}
	return checks
}

// closedTo returns the first directory of a path that the thread's user may not pass; empty: it may pass all.
func closedTo(dir string) string {
	at := "/"
	for _, part := range strings.Split(strings.Trim(filepath.Clean(dir), "/"), "/") {
		if at = filepath.Join(at, part); unix.Faccessat(unix.AT_FDCWD, at, unix.X_OK, unix.AT_EACCESS) != nil {
			return at
		}
	}
	return ""
}

// writtenMemory compares the memory that programs write, which is on ordinary pages and locked, with what the machine
// has: available bytes, 0 if that is not known. What they read is on huge pages, which the section memory counts.
func writtenMemory(a *config.Attach, available uint64) Check {
	const name = "memory of programs"
	var in, out uint64
	for _, p := range a.Programs {
		in, out = in+uint64(p.In), out+uint64(p.Out)
	}
	detail := fmt.Sprintf("%s that they read, among the huge pages above; %s that they write, on ordinary pages", mebibytes(in), mebibytes(out))
	if available > 0 && out > available {
		return fail(name, "%s: %d MiB of memory are available", detail, available>>20).with("lower out in attach.programs, or free memory")
	}
	return ok(name, "%s", detail)
}

// programMemory returns the bytes of all programs' memory, and of those that are on ordinary pages.
func programMemory(a *config.Attach) (all, ordinary uint64) {
	for _, p := range a.Programs {
		all, ordinary = all+uint64(p.In)+uint64(p.Out), ordinary+uint64(p.Out)
	}
	return all, ordinary
}

// offersZeroCopy returns whether the driver of an interface offers zero copy.
func offersZeroCopy(iface string) (bool, error) {
	link, err := netlink.LinkByName(iface)
	if err != nil {
		return false, err
	}
	features, err := xdpFeatures(link.Attrs().Index)
	return features&xdpZeroCopy != 0, err
}

// exposed says what a program can read if packets land in its memory.
func exposed(f *config.Flow, offered bool, err error) Check {
	name := fmt.Sprintf("flow %s: to.expose", f.Name)
	queues := "all queues"
	if f.From.Queues != nil {
		queues = fmt.Sprintf("queues %v", f.From.Queues)
	}
	switch {
	case f.From.ZeroCopy == config.ZeroCopyCopy:
		return ok(name, "the kernel copies into the memory of program %s only what the filter takes", f.To.Attach)
	case err != nil:
		return warn(name, "whether %s has zero copy is not known (%v): if so, program %s can read every packet of %s", f.From.Interface, err, f.To.Attach, queues).
			with("set from.zero_copy: copy if the program must not")
	case offered:
		return warn(name, "%s offers zero copy: program %s can then read every packet of %s, also those that the filter leaves to the host", f.From.Interface, f.To.Attach, queues).
			with("set from.zero_copy: copy if the program must not, or steer other packets to other queues")
	}
	return ok(name, "%s has no zero copy: the kernel copies into the memory of program %s only what the filter takes", f.From.Interface, f.To.Attach)
}

// waiting names the programs that a daemon's flows wait for, and those whose packets are lost meanwhile. raw is the
// daemon's status.
func waiting(raw []byte) (checks []Check) {
	var s status.Daemon
	if err := json.Unmarshal(raw, &s); err != nil {
		return []Check{unknown("running daemon", "its status: %v", err)}
	}
	if s.Programs == nil {
		return nil
	}
	for i := range s.Programs.Programs {
		p := &s.Programs.Programs[i]
		flows := flowsOf(p.Name, s.Flows)
		name := "running program " + p.Name
		closed := slices.DeleteFunc(slices.Clone(flows), func(f programFlow) bool { return f.open })
		switch {
		case len(flows) == 0:
		case len(closed) == 0:
			checks = append(checks, ok(name, "process %d has all its flows open", p.PID))
		default:
			checks = append(checks, absent(p, name, closed))
		}
	}
	return checks
}

// programFlow is a flow of a program, as a daemon tells of it.
type programFlow struct {
	name string
	open bool
	lost uint64 // packets that came while the program had no port open
}

// flowsOf returns the flows of a program that run.
func flowsOf(program string, all []status.Flow) (flows []programFlow) {
	for i := range all {
		f := &all[i]
		if g := f.Gives; g != nil && g.Program == program && f.State.Up() {
			flows = append(flows, programFlow{f.Name, g.Open, f.Dropped["no_program"]})
		}
		if b := f.Submits; b != nil && b.Program == program && f.State.Up() {
			flows = append(flows, programFlow{f.Name, b.Open, 0})
		}
	}
	return flows
}

// absent says which flows of a program wait for it.
func absent(p *status.Program, name string, closed []programFlow) Check {
	names, lost := make([]string, len(closed)), uint64(0)
	for i, f := range closed {
		names[i], lost = f.name, lost+f.lost
	}
	what := "is not attached"
	if p.Attached {
		what = fmt.Sprintf("is attached as process %d, and has not opened them", p.PID)
	}
	return warn(name, "flows that wait for it: %s; it %s; %d packets are lost for that", strings.Join(names, ", "), what, lost).
		with("start the program; unifiedd status and the daemon's log say why it was refused, if it was")
}
