package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
)

// addGroups examines what members of groups need: addresses, and a machine that does not pause for as long
// as a silent leader is tolerated.
func (r *Report) addGroups(n needs) {
	if !slices.ContainsFunc(n.Flows, func(f config.Flow) bool { return f.To.Replicas != nil }) {
		return
	}
	p := measurePauses(measureFor)
	for i := range n.Flows {
		if f := &n.Flows[i]; f.To.Replicas != nil {
			checks := append(memberAddresses(f.To.Replicas), memberRoutes(f)...)
			r.add(fmt.Sprintf("group of flow %s", f.Name), append(checks, p.judge(f.To.Replicas.Suspect)))
		}
	}
}

// memberAddresses checks that this member can listen at its addresses, and that those of the others are known.
func memberAddresses(g *config.Replicas) (checks []Check) {
	if own := g.Own(); g.Listen != "" && own >= 0 {
		if host, _, err := net.SplitHostPort(g.Listen); err == nil && host != "" {
			checks = append(checks, ownAddress("to.group.listen", g.Listen))
		}
	}
	for i, m := range g.Members {
		if m.Peer != "" {
			continue // the resolver finds it
		}
		check := resolves
		if m.Name == g.Self {
			check = ownAddress
		}
		name := func(key string) string { return fmt.Sprintf("to.group.members[%d].%s", i, key) }
		checks = append(checks, check(name("address"), m.Address))
		if !m.Witness { // it has no records
			checks = append(checks, check(name("clients"), m.Clients))
		}
		for k, p := range m.Paths {
			checks = append(checks, check(name(fmt.Sprintf("paths[%d].address", k)), p.Address))
			if !m.Witness {
				checks = append(checks, check(name(fmt.Sprintf("paths[%d].clients", k)), p.Clients))
			}
		}
	}
	return checks
}

// ownAddress reports whether an address is one of this machine. The others connect to it, so that it has a host.
func ownAddress(name, at string) Check {
	c := address(name, "tcp", at)
	if c.State == Fail {
		c = c.with("name an address of this machine (ip address shows them), or another member as self")
	}
	return c
}

// resolveLimit is how long the doctor waits for the name of a member.
const resolveLimit = 5 * time.Second

// resolves reports whether the host of an address is an IP address, or a name that has one. Without it this
// member cannot reach the other one, and starts nevertheless.
func resolves(name, at string) Check {
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return fail(name, "%v", err) // the configuration's checks have reported it
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return ok(name, "%s is an IP address", at)
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveLimit)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return warn(name, "%s: %v", at, err).with("name a host that DNS or /etc/hosts has, or an IP address")
	}
	return ok(name, "%s is %v", at, found[0].Unmap())
}

// pauses is how long a thread of this machine did not run when it could have.
type pauses struct{ longest, measured time.Duration }

const (
	// measureFor is how long the doctor measures. Pauses that are rare take longer to find.
	measureFor = time.Second
	sleepTime  = time.Millisecond
)

// measurePauses lets its thread sleep again and again, and notes how late it runs at most. The thread has the
// scheduling of the daemon's threads, which send and hear heartbeats.
func measurePauses(during time.Duration) (p pauses) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	for p.measured < during {
		before := time.Now()
		length := unix.NsecToTimespec(int64(sleepTime))
		_ = unix.Nanosleep(&length, nil) // a signal makes it shorter, which is no pause
		p.longest, p.measured = max(p.longest, time.Since(before)-sleepTime), time.Since(began)
	}
	return p
}

// judge compares the longest pause with the silence after which members elect another leader.
func (p pauses) judge(suspect time.Duration) Check {
	const name = "to.group.suspect"
	longest, measured := p.longest.Round(10*time.Microsecond), p.measured.Round(100*time.Millisecond)
	if p.longest < suspect {
		return ok(name, "%v; the longest pause of a thread within %v was %v", suspect, measured, longest)
	}
	return warn(name, "%v, and the longest pause of a thread within %v was %v: followers would elect another leader while this one lives", suspect, measured, longest).
		with("set to.group.suspect to more than the longest pause, such as %v, or give the daemon a processor of its own", (2 * p.longest).Round(time.Millisecond))
}
