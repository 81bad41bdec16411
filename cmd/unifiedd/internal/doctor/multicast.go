package doctor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/multicast"
)

// queryWait bounds the time in which a querier is to ask after a member has left. It asks within a second.
const queryWait = 3 * time.Second

// listening is an interface, and a version of IP, that a flow joins groups on.
type listening struct {
	iface string
	v6    bool
}

// addMulticast listens for queriers where flows join groups.
func (r *Report) addMulticast(n needs) {
	var all []listening
	for i := range n.Flows {
		from := &n.Flows[i].From
		for _, j := range from.Join {
			on := from.All()
			if j.Interface != "" {
				on = []string{j.Interface}
			}
			for _, name := range on {
				all = append(all, listening{name, j.Group.Is6()})
			}
		}
	}
	slices.SortFunc(all, func(a, b listening) int {
		return slices.Compare([]string{a.iface, a.name()}, []string{b.iface, b.name()})
	})
	var checks []Check
	for _, l := range slices.Compact(all) {
		q, err := multicast.Listen(l.iface, l.v6, queryWait)
		checks = append(checks, l.judge(q, err))
	}
	r.add("multicast", checks)
}

// name is the name of the check.
func (l listening) name() string {
	if l.v6 {
		return fmt.Sprintf("querier of MLD on %s", l.iface)
	}
	return fmt.Sprintf("querier of IGMP on %s", l.iface)
}

func (l listening) judge(q multicast.Querier, err error) Check {
	switch {
	case err == nil:
		return ok(l.name(), "%s asks for members by %s, %v after a member joined and left", q.Address, q.Protocol, q.After.Round(time.Millisecond))
	case errors.Is(err, multicast.ErrNoQuerier):
		return warn(l.name(), "nobody has asked for members within %v: a switch with snooping forgets them after some minutes, and passes nothing on", queryWait).
			with("enable a querier on a switch or router of this network; none is needed where no switch has snooping, which cannot be seen from here")
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return unknown(l.name(), "%v", err).with("run as root, or grant CAP_NET_RAW")
	}
	return unknown(l.name(), "%v", err)
}
