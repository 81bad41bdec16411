package stream

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
)

// target chooses which of several receivers a sender dials: the members of a group, of which one
// takes messages.
type target struct {
	addresses []string        // by member: where it is dialed; with places that of the last locate, or empty
	known     [][]string      // by path, and then by member: all addresses, if there are several paths
	places    []Place         // by member; nil: the addresses do not change
	failures  []int           // by member: attempts that failed. They choose among several addresses of a place
	changed   <-chan struct{} // closed when the place of the member may have changed since locate; nil: never
	at        int
	hops      int       // redirects since messages were last acknowledged
	lacking   time.Time // since when members lack what was acknowledged; zero: none does
	timeout   time.Duration
	lost      int       // the member that was silent, or could not be reached
	lostUntil time.Time // until when the others' word that it leads is not taken
}

// A member that is silent for leastTimeout, or does not answer a dial for as long, may hang, or its link may be
// cut. Then the sender tries another one, and believes nobody for as long that the silent one leads. Without an
// acknowledgement in between, the time doubles up to maxTimeout: the group may only be slow.
const leastTimeout, maxTimeout = 250 * time.Millisecond, 2 * time.Second

func newTarget(c *SenderConfig) target {
	t := target{addresses: append([]string{c.Address}, c.Others...), places: c.Places, timeout: leastTimeout}
	if n := len(c.Places); n > 0 {
		t.addresses, t.failures = make([]string, n), make([]int, n)
	}
	if len(c.Paths) > 0 {
		t.known = append(t.known, slices.Clone(t.addresses))
	}
	for _, p := range c.Paths {
		t.known = append(t.known, append([]string{p.Address}, p.Others...))
	}
	return t
}

// address returns the address to dial.
func (t *target) address() string { return t.addresses[t.at] }

// group reports whether there are several receivers.
func (t *target) group() bool { return len(t.addresses) > 1 }

// member returns the member that an address is of, over any path; -1: none is known.
func (t *target) member(address string) int {
	if address == "" {
		return -1
	}
	for _, all := range append([][]string{t.addresses}, t.known...) {
		if i := slices.Index(all, address); i >= 0 {
			return i
		}
	}
	return -1
}

// forgetful is how long members may lack what was acknowledged before the sender believes that the group
// has lost it, and begins a new session.
const forgetful = 10 * time.Second

// other reports whether another member may have what this one lacks.
func (t *target) other(now time.Time) bool {
	if t.lacking.IsZero() {
		t.lacking = now
	}
	return t.group() && now.Sub(t.lacking) < forgetful
}

// failed chooses the next receiver after a connection that has ended, at a time. It reports whether to dial
// it at once: a member has named the leader, or has stopped to lead.
func (t *target) failed(cause error, moved bool, at time.Time) (now bool) {
	t.goesOn(moved)
	if t.failures != nil && !moved {
		t.failures[t.at]++
	}
	if !t.group() {
		return false
	}
	refused := doesNotLead(cause)
	if !refused {
		t.lost, t.lostUntil = t.at, at.Add(t.timeout)
		t.slower()
	}
	away := func(i int) bool { return i == t.lost && at.Before(t.lostUntil) }
	named := t.member(leaderIn(cause))
	if named >= 0 && named != t.at && !away(named) {
		t.at = named
		t.hops++
		return t.hops <= len(t.addresses)
	}
	if t.at = (t.at + 1) % len(t.addresses); away(t.at) {
		t.at = (t.at + 1) % len(t.addresses)
	}
	if refused && (named < 0 || !away(named)) {
		t.hops++
		return t.hops <= len(t.addresses)
	}
	return false
}

// goesOn says that a connection has ended, and whether messages were acknowledged over it.
func (t *target) goesOn(moved bool) {
	if moved {
		t.hops, t.lacking, t.timeout = 0, time.Time{}, leastTimeout
	}
}

// slower makes the sender wait longer for an acknowledgement, and for the answer to a dial.
func (t *target) slower() { t.timeout = min(2*t.timeout, maxTimeout) }

// doesNotLead reports whether a member has refused the sender, or ended the connection, because it does not lead.
func doesNotLead(cause error) bool {
	return errors.Is(cause, protocol.NotLeader) || strings.Contains(cause.Error(), protocol.NotLeader.Error())
}

// leaderIn returns the address of the leader in a member's refusal, such as "not_leader epoch=7
// leader=10.0.0.2:7471: …", or "".
func leaderIn(cause error) string {
	_, text, found := strings.Cut(cause.Error(), protocol.NotLeader.String()+" epoch=")
	if !found {
		return ""
	}
	_, text, found = strings.Cut(text, " leader=")
	if !found {
		return ""
	}
	text, _, _ = strings.Cut(text, " ")
	return strings.TrimSuffix(text, ":")
}
