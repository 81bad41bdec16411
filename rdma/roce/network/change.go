package network

import "github.com/unifiedd/unifiedd/rdma"

// What says what has changed.
type What uint8

const (
	// Gone: the interface is no longer there; nothing else is told after it.
	Gone What = iota + 1
	// LinkChanged: name, MAC, MTU or whether the interface is up. Change.Link is what it is now.
	LinkChanged
	// GIDAdded and GIDRemoved: Change.GID has come into the table, or was in it.
	GIDAdded
	GIDRemoved
	// WayChanged: packets to the peer of Change.Kept must look otherwise than before; or the way was lost and
	// is back.
	WayChanged
	// WayLost: they get there no longer; Kept.Way has the reason. The kernel goes on asking.
	WayLost
)

func (w What) String() string {
	names := []string{"none", "gone", "link changed", "GID added", "GID removed", "way changed", "way lost"}
	if int(w) < len(names) {
		return names[w]
	}
	return "unknown"
}

// Change is a difference between what is and what was told before.
type Change struct {
	What    What
	Link    Link          // of LinkChanged
	GID     rdma.GIDEntry // of GIDAdded and GIDRemoved
	Tracked *TrackedRoute // of WayChanged and WayLost
}

// reported is what Next has said or Open has shown.
type reported struct {
	gone  bool
	link  Link
	table table
	ways  []*TrackedRoute // what may be to be told
}

// FD is readable while Next may have something. It is the Interface's: to poll, not to read or close. After Close
// it is -1.
func (i *Interface) FD() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.event.fd
}

// Next hands out the next change; false says that there is none.
func (i *Interface) Next() (Change, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.next()
	if c.What == 0 {
		i.event.lower()
	}
	return c, c.What != 0
}

func (i *Interface) next() Change {
	t := &i.reported
	now := i.links[0].public()
	switch {
	case t.gone:
		return Change{}
	case i.gone:
		t.gone = true
		return Change{What: Gone}
	case t.link != now:
		t.link = now
		return Change{What: LinkChanged, Link: now}
	}
	if c := t.nextGID(i.table); c.What != 0 {
		return c
	}
	return i.nextRoute()
}

// nextGID makes one place of the told table like that of the real one.
func (t *reported) nextGID(now table) Change {
	for len(t.table) < len(now) {
		t.table = append(t.table, address{})
	}
	for n, a := range now {
		switch before := t.table[n]; {
		case before == a:
		case before != address{}:
			t.table[n] = address{}
			return Change{What: GIDRemoved, GID: before.entry(n)}
		default:
			t.table[n] = a
			return Change{What: GIDAdded, GID: a.entry(n)}
		}
	}
	return Change{}
}

// nextRoute takes the next way that is not as it was told.
func (i *Interface) nextRoute() Change {
	for len(i.reported.ways) > 0 {
		k := i.reported.ways[0]
		i.reported.ways = i.reported.ways[1:]
		k.queued = false
		what := k.difference()
		k.lastRoute, k.lostReported = k.way, k.err != nil
		if _, kept := i.tracked[k]; kept && what != 0 {
			return Change{What: what, Tracked: k}
		}
	}
	return Change{}
}
