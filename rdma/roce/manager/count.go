package manager

import "github.com/unifiedd/unifiedd/rdma/roce/mad"

// counter is something that is counted, beside messages by kind and by what is wrong with them.
type counter uint8

const (
	resent        counter = iota // messages said again, since no answer came
	duplicate                    // messages that came again
	unmatched                    // messages of no connection here
	unexpected                   // messages that make no sense as their connection is
	rejected                     // requests that were refused: no listener, no room, an offer that cannot be
	stale                        // requests with a queue pair that is, or was lately, connected
	probes                       // peers that were asked whether they still have a connection, since a request claims its queue pair
	probesHeld                   // such requests that came too soon after the last probe
	probesAlive                  // peers that have it
	probesGone                   // peers that have it no more: it was ended
	full                         // requests that were refused since the listener, or the manager, had no room
	addressLimit                 // half-open connections that gave way to others of their address
	halfOpenLimit                // half-open connections that gave way to those of other addresses
	givenUp                      // peers that did not answer any more
	established                  // connections that came about
	crowded                      // messages not sent, since too many were to be
	wayless                      // messages not sent, since no way leads to the peer, or too many are being looked for
	unreachable                  // messages not taken, since no way leads to who sent them
	lookupsCut                   // look-ups of addresses that gave way to newer ones
	otherSource                  // datagrams not from queue pair 1, or to no address of ours
	cut                          // connections whose time-wait was ended for others
	counters
)

var counterNames = [counters]string{"resent", "duplicate", "unmatched", "unexpected", "rejected", "stale", "probes", "probes_held", "probes_alive", "probes_gone", "full",
	"half_open_address_limit", "half_open_limit", "given_up", "established", "unsent_crowded",
	"unsent_no_way", "dropped_no_way", "lookups_cut", "dropped_source", "timewait_cut"}

// counts are written under the manager's lock.
type counts struct {
	own            [counters]uint64
	sent, received [mad.Kinds]uint64
	malformed      [mad.Reasons]uint64
}

func (c *counts) add(what counter) { c.own[what]++ }

// each calls f with the name and the value of each, in an order that stays.
func (c *counts) each(f func(name string, value uint64)) {
	for i := range mad.Kinds {
		name := (mad.REQ + mad.Kind(i)).String()
		f("cm_sent_"+name, c.sent[i])
		f("cm_received_"+name, c.received[i])
	}
	for why := mad.WellFormed + 1; why < mad.Reasons; why++ {
		f("cm_malformed_"+why.String(), c.malformed[why])
	}
	for i, name := range counterNames {
		f("cm_"+name, c.own[i])
	}
}
