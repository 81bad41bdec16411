package replica

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/internal/printable"
)

// Only the leader knows how far the members are, hands over and changes the members. An operator may ask any member: one that
// does not lead sends a request to the leader, again and again until there is a reply, because messages may be lost and the
// leader may change. A request has the epoch: a later leader, or the same one later, ignores an old one. What is asked for is
// a state, such as "member 4 is a voter", so a request that is repeated does nothing twice.

// request is something that this member asks the leader for. It belongs to Run.
type request struct {
	d       *Driver
	message group.Message
	asked   bool // there was a leader: the next one is waited for
}

// RefusedError means that the leader refuses a request.
type RefusedError struct {
	Leader uint32
	Why    string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("member %d, which leads: %s", e.Leader, e.Why)
}

// ask sends the request to the leader, unless there is a reply. It reports whether what is asked for is done.
func (r *request) ask() (done bool, err error) {
	d, m := r.d, &r.message
	if m.Serial == 0 {
		d.serial++
		m.From, m.Kind, m.Serial = d.config.Self, group.KindRequest, d.serial
		d.requests[m.Serial] = nil
	}
	if reply := d.requests[m.Serial]; reply != nil {
		if reply.Refusal != "" {
			return false, &RefusedError{reply.From, printable.Only(reply.Refusal, group.MaxRefusal)}
		}
		return true, nil
	}
	m.To, m.Epoch = d.member.Leader(), d.member.Epoch()
	switch {
	case m.To == 0 && !r.asked:
		return false, &NotLeaderError{}
	case d.transport.Older(m.To): // it would end the connection
		return false, &RefusedError{m.To, "it is of an older release, which takes this only from its own operator: run the command on that member"}
	case m.To != 0 && m.To != d.config.Self: // else the next leader is asked, or this member is about to lead
		r.asked = true
		d.transport.Send(m)
	}
	return false, nil
}

// end forgets the request. Any goroutine may call it.
func (r *request) end() {
	go r.d.call(func() { delete(r.d.requests, r.message.Serial) }) // Run may wait for a disk
}

// step handles a message of another member.
func (d *Driver) step(m *group.Message) {
	switch m.Kind {
	case group.KindAsk:
		d.answer(m)
		return
	case group.KindKnown:
		return
	case group.KindRequest, group.KindReply:
		d.operate(m)
		return
	}
	if d.fromLeader(m) {
		d.leaderSeen = time.Now()
	}
	if err := d.member.Step(*m); err != nil && d.member.Err() == nil {
		d.log.Warn("a message of a member of the group was refused", "member", m.From, "err", err)
	}
}

// operate handles a request of another member, or a reply.
func (d *Driver) operate(m *group.Message) {
	if m.Kind == group.KindReply {
		if _, waits := d.requests[m.Serial]; waits && m.From == d.member.Leader() && m.Epoch == d.member.Epoch() {
			d.requests[m.Serial] = m
		}
		return
	}
	if d.member.Phase() != group.Leading || m.Epoch != d.member.Epoch() {
		return
	}
	reply := group.Message{From: d.config.Self, To: m.From, Kind: group.KindReply, Epoch: m.Epoch, Serial: m.Serial}
	done, err := false, error(nil)
	switch m.Request {
	case group.RequestStatus:
		done = true
		for _, s := range d.standings {
			reply.Members = append(reply.Members, group.Progressed{Member: s.Number, Away: s.Away, Safe: s.Safe})
		}
	case group.RequestTransfer:
		err = d.handOver(m.Add)
	case group.RequestChange:
		done, err = d.change(m.Add, m.Remove)
	}
	if err != nil {
		reply.Refusal = err.Error()
	}
	if done || err != nil {
		d.transport.Send(&reply)
	}
}

// standingTime is how long a member waits for the leader to say how far the members are.
const standingTime = 2 * time.Second

// Standings returns the members as the leader knows them: who is away, and how far each one is.
func (d *Driver) Standings(ctx context.Context) (all []Standing, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, standingTime, fmt.Errorf("the leader has not answered within %v", standingTime))
	defer cancel()
	r := &request{d: d, message: group.Message{Request: group.RequestStatus}}
	defer r.end()
	err = d.poll(ctx, func() (done bool, err error) {
		all = slices.Clone(d.standings)
		if d.member.Phase() == group.Leading {
			return true, nil
		}
		if done, err = r.ask(); !done || err != nil {
			return done, err
		}
		for _, one := range d.requests[r.message.Serial].Members {
			for i := range all {
				if all[i].Number == one.Member {
					all[i].Away, all[i].Safe = one.Away, one.Safe
				}
			}
		}
		return true, nil
	})
	return all, err
}
