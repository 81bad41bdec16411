package member

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/group/transport"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/replica"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Seat is a member's part in its group: elections, and who the members are. Any goroutine may call its
// methods.
type Seat struct {
	flow    string // its name
	driver  *replica.Driver
	group   atomic.Pointer[config.Replicas]
	where   *whereabouts
	running pipeline.Service
	cut     atomic.Pointer[replica.CutError]
	term    atomic.Pointer[term]
	changed notice       // the leader, or that it takes records
	waiting atomic.Int64 // clients that wait for a change
	devices []string     // by path
}

// term is who leads an epoch.
type term struct {
	leader uint32 // 0: not known
	text   string // for clients
}

// leader returns who leads, and a text for clients.
func (s *Seat) leader() (leader uint32, text string) {
	if t := s.term.Load(); t != nil {
		return t.leader, t.text
	}
	return 0, "not_leader"
}

// notice tells goroutines of changes.
type notice struct {
	mu sync.Mutex
	ch chan struct{} // closed at the next change
}

// wait returns a channel that is closed at the next change.
func (n *notice) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *notice) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

// openDriver listens for the other members. from is nil for a witness.
func (m *Member) openDriver(e *pipeline.Env, from *Source) (*Seat, error) {
	s := &Seat{flow: e.Flow.Name, where: &whereabouts{names: e.Shared.Names}, devices: e.Flow.Devices()}
	s.group.Store(m.group)
	if m.file == nil {
		e.Undo.Add(func() error { // the driver has ended
			if m.file == nil {
				return nil
			}
			return m.file.Close()
		})
	}
	e.Undo.Add(s.where.Close)
	if err := s.where.use(m.group); err != nil {
		return nil, err
	}
	known, _ := s.where.peers()
	c := replica.DriverConfig{
		Group: m.group.Name, Self: m.self, Peers: known, Listen: m.group.ListensAt(), Further: m.group.ListensFurther(), Heartbeat: m.group.Heartbeat, Suspect: m.group.Suspect, Spread: m.group.PathMode == config.PathActive, Release: e.Shared.Release,
		State: m.file, Make: func() (*replica.StateFile, error) { return m.makeState(e) }, Elections: m.state, Do: e.Do, Logger: e.Log, Connect: connect.Config{Credentials: e.Shared.Credentials},
		Led: s.led,
	}
	if from != nil {
		c.Links, c.Replicator, c.Log = from.links, from.replicator, &log{from}
		c.Full = func() error { return from.writer.NoSpace() }
	}
	if secret := e.Shared.Credentials; secret != nil {
		c.Secure = transport.Config{TLS: func() *tls.Config { return secret.TLS(transport.Protocol) }, NameOf: connect.NameOf}
	}
	var err error
	if s.driver, err = replica.OpenDriver(c); err != nil {
		return nil, err
	}
	e.Undo.Add(s.driver.Close)
	if secret := e.Shared.Credentials; secret != nil {
		stop := secret.Notify(s.driver.Reconnect)
		e.Undo.Add(func() error { stop(); return nil })
	}
	return s, nil
}

// led keeps who leads, for clients that are refused.
func (s *Seat) led(leader uint32, epoch uint64) {
	text := fmt.Sprintf("not_leader epoch=%d", epoch)
	if at := s.where.clients(leader); at != "" {
		text += " leader=" + at
	}
	s.term.Store(&term{leader, text})
	s.changed.tell()
}

// begin starts to take part.
func (s *Seat) begin() {
	s.running.Start(func(ctx context.Context) error {
		var following sync.WaitGroup
		follow, end := context.WithCancel(ctx)
		following.Go(func() { s.where.follow(follow, s.driver.SetPeers) })
		err := s.driver.Run(ctx)
		end()
		following.Wait()
		if cut, is := errors.AsType[*replica.CutError](err); is {
			s.cut.Store(cut)
		}
		return s.name(err)
	})
}

// name says which member has lost its files, and what to do.
func (s *Seat) name(err error) error {
	lost, is := errors.AsType[*replica.LostError](err)
	if !is {
		return err
	}
	g := s.group.Load()
	remedy := replaceIt(s.flow, g.Self)
	if lost.Needed {
		remedy = fmt.Sprintf("Without it, too few members vote to put another one in its place: the group stays as it is until these files are back. If they are gone for good, begin a group with other files. The log of member %s has every record that was acknowledged (unifiedd log read)", nameOf(g, lost.Told))
	}
	return fmt.Errorf("this member, %s, has no state of group %s, and member %s knows it as one that has voted (epoch %d): the files of %[1]s are lost, and with them what it has confirmed. It must not take part again. %[5]s", g.Self, g.Name, nameOf(g, lost.Told), lost.Epoch, remedy)
}

// replaceIt says what to do with a member that has lost its vote.
func replaceIt(flow, member string) string {
	return fmt.Sprintf("Put a member with another name and number in its place, and run on the leader: unifiedd group replace %s %s NEW", flow, member)
}

// check returns what ends the flow.
func (s *Seat) check() error {
	if cut := s.cut.Load(); cut != nil {
		return cut
	}
	return s.running.Err()
}

// Update changes which members the configuration has.
func (s *Seat) Update(g *config.Replicas) error {
	before := s.group.Load()
	if err := s.where.use(g); err != nil {
		return err
	}
	known, _ := s.where.peers()
	if err := s.driver.SetPeers(known); err != nil {
		return errors.Join(err, s.where.use(before))
	}
	s.group.Store(g)
	return nil
}

// number returns the number of a member by its name.
func (s *Seat) number(name string) (uint32, error) {
	g := s.group.Load()
	for i, r := range g.Members {
		if r.Name == name {
			return g.NumberOf(i), nil
		}
	}
	return 0, fmt.Errorf("there is no member %q of group %s in the configuration (add it there on all members, and reload)", name, g.Name)
}

// explain adds names to an error.
func (s *Seat) explain(err error) error {
	g := s.group.Load()
	if _, is := errors.AsType[*replica.NotLeaderError](err); is {
		return fmt.Errorf("group %s has no leader now: try again", g.Name)
	}
	if refused, is := errors.AsType[*replica.RefusedError](err); is {
		return fmt.Errorf("member %s, which leads group %s: %s", nameOf(g, refused.Leader), g.Name, refused.Why)
	}
	return err
}

// Transfer makes another member lead. A member that does not lead asks the leader, as with Change and Members.
func (s *Seat) Transfer(ctx context.Context, to string) error {
	n, err := s.number(to)
	if err != nil {
		return err
	}
	return s.explain(s.driver.Transfer(ctx, n))
}

// handOver makes another member lead, if this one does: it is about to stop. If that fails, the others notice
// the silence.
func (s *Seat) handOver() {
	ctx, cancel := context.WithTimeout(context.Background(), handOverTime)
	defer cancel()
	s.driver.HandOver(ctx)
}

// handOverTime is the longest time that a stop waits for another leader.
const handOverTime = 2 * time.Second

// Change makes a member a voter, once it has all records, and makes another one leave. A name may be empty.
func (s *Seat) Change(ctx context.Context, add, remove string) (err error) {
	var in, out uint32
	if add != "" {
		if in, err = s.number(add); err != nil {
			return err
		}
	}
	if remove != "" {
		if out, err = s.number(remove); err != nil {
			return err
		}
	}
	return s.explain(s.driver.Change(ctx, in, out))
}

// Members returns the members as the leader knows them: who is away, and how far each one is. If the leader does not say,
// they are as this member knows them.
func (s *Seat) Members(ctx context.Context) ([]status.Member, error) {
	all, err := s.driver.Standings(ctx)
	if err != nil {
		all = s.driver.State().Standings
	}
	return s.membersOf(s.group.Load(), all), s.explain(err)
}

// membersOf describes members for a status.
func (s *Seat) membersOf(g *config.Replicas, all []replica.Standing) (members []status.Member) {
	releases := s.driver.State().Releases
	for _, one := range all {
		m := status.Member{Name: nameOf(g, one.Number), Number: one.Number, Role: string(one.Role), Away: one.Away, Safe: one.Safe, PathMode: string(one.Mode), Version: releases[one.Number]}
		if one.Path > 0 {
			m.Device = s.devices[one.Path-1]
		}
		members = append(members, m)
	}
	return members
}

// observe returns the part of a status that all members have.
func (s *Seat) observe() *status.Group {
	g, d := s.group.Load(), s.driver.State()
	to := &status.Group{
		Name: g.Name, Member: g.Self, State: d.Phase.String(), Epoch: d.Epoch, Elections: d.Elections, Silence: d.Silence, Silent: d.Silent,
		Refused: d.Refused + d.Transport.Refused, Dropped: d.Transport.Dropped, Untaken: d.Untaken,
	}
	if d.Waits {
		to.State = status.GroupWaits
	}
	if d.Leader > 0 {
		to.Leader = nameOf(g, d.Leader)
	}
	if len(d.Paths) > 0 {
		to.PathMode = string(cmp.Or(g.PathMode, config.PathStandby))
	}
	to.Members = s.membersOf(g, d.Standings)
	for i := range d.Paths {
		p := &d.Paths[i]
		to.Paths = append(to.Paths, status.Path{Device: s.devices[p.Number], Address: s.where.over(d.Leader, p.Number), State: p.State, Error: p.Error, Connections: p.Connections, Failures: p.Failures, Taken: p.Taken, Left: p.Left})
	}
	return to
}
