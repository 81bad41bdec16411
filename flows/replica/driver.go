package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/flows/group/election"
	"github.com/unifiedd/unifiedd/flows/group/transport"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Peer is a member of the group, as the configuration has it.
type Peer struct {
	transport.Peer
	Records []string // addresses of its RDMA listener, dialed in turn; none for a witness, or where they are not known
	Further []string // of its RDMA listeners on the further paths: see Config.Others
	Host    string   // name for which its certificate must be valid, with TLS; empty: the host that is dialed
	Witness bool
}

// Log is the log of a member. Its methods are called on the worker's thread.
type Log interface {
	// Begin appends the record that begins an epoch, at the next position, and calls Replicator.Lead. ok is
	// false if there is no room now.
	Begin(epoch uint64, c *group.Config) (ok bool, err error)
	// StepDown ends the connections of clients. Messages that are not acknowledged stay so.
	StepDown()
}

// DriverConfig configures a Driver.
type DriverConfig struct {
	Group     string
	Self      uint32
	Peers     []Peer           // all members, this one included
	Listen    string           // address for the other members
	Further   []string         // more of these, on the further paths
	Secure    transport.Config // its TLS and NameOf
	Connect   connect.Config   // for links
	Heartbeat time.Duration    // of the leader
	Suspect   time.Duration    // silence of the leader after which there is an election
	Spread    bool             // the followers of a leader prefer different paths
	Release   string           // of this program, which the other members show

	Links      *Links // nil: this member is a witness
	Replicator *Replicator
	Log        Log
	State      *StateFile                 // nil: the member has none yet
	Make       func() (*StateFile, error) // makes one
	Elections  election.State             // as the StateFile has it
	Do         stream.Doer                // runs a function on the worker's thread
	Logger     *slog.Logger
	Full       func() error // the error of the log's disk if it has no space for more records; nil: there is no log
	// Led is called when the leader or the epoch changes; leader 0: not known. May be nil.
	Led func(leader uint32, epoch uint64)
}

// Driver does the I/O of a group.Member. Any goroutine may call its methods.
type Driver struct {
	config    DriverConfig
	log       *slog.Logger
	member    *group.Member // of run
	transport *transport.Transport
	messages  chan group.Message
	calls     chan func()   // to run
	untaken   atomic.Uint64 // messages that found no place
	refused   atomic.Uint64 // members that asked for records
	peers     atomic.Pointer[map[uint32]Peer]
	links     sync.WaitGroup
	ways      *ways
	ctx       context.Context
	cancel    context.CancelFunc
	waits     atomic.Bool // see enter

	leaderSeen time.Time            // when the leader was last heard over the transport
	linked     time.Time            // when this member last had a link to the leader, or entered the epoch
	asked      time.Time            // when an election was last asked for
	doubted    time.Time            // since when the leader of this epoch is suspected; zero: it is not
	abstain    time.Time            // until when this member does not ask for one
	heardFew   time.Time            // since when this leader hears too few followers
	lost       map[uint32]time.Time // when the connection of a member ended: its process may have died
	heardAt    map[uint32]time.Time // when a member was last heard over the transport
	leadsSince time.Time            // when this member began to lead
	elections  uint64
	shown      atomic.Pointer[State]
	told       [2]uint64         // leader and epoch that Led was called with
	served     uint64            // links that members asked for
	newest     map[uint32]uint64 // by member: the number of its newest link
	toBegin    uint64            // epoch whose first record is to be appended; 0: none
	silence    time.Duration
	silent     silent
	disks      disks
	handing    handing
	standings  []Standing                // replaced, never changed
	modes      map[uint32]PathMode       // of the members, as compareModes saw them last
	confirms   map[uint64]chan struct{}  // by number: closed when this member led at that time
	requests   map[uint64]*group.Message // by serial: the leader's reply to a request; nil: there is none yet
	serial     uint64                    // of the last request: another run of this member has others
}

// CutError means that the log must end after a position: the leader does not have the later records.
// The flow begins again with such a log.
type CutError struct {
	After   uint64
	Records uint64 // how many these are
}

func (e *CutError) Error() string {
	return fmt.Sprintf("the %d records after position %d are cut off: the group's leader does not have them", e.Records, e.After)
}

// OpenDriver listens for the other members. Run does the rest.
func OpenDriver(c DriverConfig) (*Driver, error) {
	d := &Driver{config: c, log: c.Logger, messages: make(chan group.Message, 256), calls: make(chan func()), newest: map[uint32]uint64{}, lost: map[uint32]time.Time{}, heardAt: map[uint32]time.Time{}, confirms: map[uint64]chan struct{}{}, requests: map[uint64]*group.Message{}, serial: uint64(time.Now().UnixNano()), modes: map[uint32]PathMode{}, ways: newWays(0)}
	if c.Links != nil {
		d.ways = newWays(len(c.Links.paths))
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	var err error
	serial := uint64(0)
	if c.State != nil {
		if err := c.State.Write(c.Elections); err != nil { // no other run has this generation
			return nil, err
		}
		serial = c.State.Generation() << 32
	}
	d.member, err = group.NewMember(group.MemberConfig{
		Self: c.Self, Witnesses: witnesses(c.Peers), State: c.Elections, Log: d.describe, Serial: serial, Logger: c.Logger,
	})
	if err != nil {
		return nil, err
	}
	t := c.Secure
	t.Silence = max(2*c.Suspect, leastSilence)
	if len(c.Further) > 0 { // another path may work
		t.Silence = max(c.Suspect/pathsOfSuspect, leastSilence)
	}
	t.Group, t.Self, t.Listen, t.Further, t.Log, t.Received, t.Lost = c.Group, c.Self, c.Listen, c.Further, c.Logger, d.received, d.processLost
	t.Release = cmp.Or(c.Release, "devel") // one that says nothing counts as older
	if d.transport, err = transport.Open(t, nil); err != nil {
		return nil, err
	}
	d.setPeers(c.Peers)
	d.show()
	return d, nil
}

// leastSilence is longer than TCP waits before it sends a lost packet again.
const leastSilence = 250 * time.Millisecond

// State is what a member does.
type State struct {
	Phase     group.Phase
	Leader    uint32 // 0: not known
	Epoch     uint64
	Elections uint64        // that this member has asked for
	Silence   time.Duration // the longest of a leader that went on
	Silent    uint64        // links that this member has ended because nothing came over them, though the leader went on
	Untaken   uint64        // messages that were dropped because too many waited
	Refused   uint64        // members that asked for records and got none
	Standings []Standing    // of all members, as this one knows them
	Transport transport.Stats
	Waits     bool              // for other members, before it votes for the first time
	Paths     []PathState       // over which the leader's records come, if there are several, in the order of preference
	Releases  map[uint32]string // of this member, and of those that say so
}

// State returns what the member does.
func (d *Driver) State() State {
	s := *d.shown.Load()
	s.Transport, s.Untaken, s.Refused, s.Paths, s.Waits = d.transport.Stats(), d.untaken.Load(), d.refused.Load(), d.ways.states(), d.waits.Load()
	s.Releases = d.transport.Releases()
	return s
}

// show publishes the state.
func (d *Driver) show() {
	last := d.shown.Load()
	if last != nil && last.Phase == d.member.Phase() && last.Leader == d.member.Leader() && last.Epoch == d.member.Epoch() && last.Elections == d.elections && last.Silence == d.silence && last.Silent == d.silent.ended && slices.Equal(last.Standings, d.standings) {
		return
	}
	d.shown.Store(&State{Phase: d.member.Phase(), Leader: d.member.Leader(), Epoch: d.member.Epoch(), Elections: d.elections, Silence: d.silence, Silent: d.silent.ended, Standings: d.standings})
}

// SetPeers changes the addresses and the names of the members. It fails if Run has ended.
func (d *Driver) SetPeers(all []Peer) error {
	ctx, cancel := context.WithTimeout(context.Background(), setTime)
	defer cancel()
	return d.ask(ctx, func() error {
		d.member.SetWitnesses(witnesses(all))
		d.setPeers(all)
		return nil
	})
}

// setTime is the longest time that a change of the peers waits for Run, which may wait for a disk.
const setTime = 10 * time.Second

// witnesses returns the numbers of the witnesses.
func witnesses(all []Peer) (numbers []uint32) {
	for _, p := range all {
		if p.Witness {
			numbers = append(numbers, p.Number)
		}
	}
	return numbers
}

func (d *Driver) setPeers(all []Peer) {
	var others []transport.Peer
	peers := map[uint32]Peer{}
	for _, p := range all {
		peers[p.Number] = p
		others = append(others, p.Peer)
	}
	d.peers.Store(&peers)
	d.transport.SetPeers(others)
}

// Addr returns where the driver listens for the other members.
func (d *Driver) Addr() net.Addr { return d.transport.Addr() }

// received queues a message. If there are too many, it is dropped: the group repeats what it needs.
func (d *Driver) received(m group.Message) {
	select {
	case d.messages <- m:
	default:
		d.untaken.Add(1)
	}
}

func (d *Driver) processLost(member uint32) {
	d.call(func() { d.lost[member] = time.Now() })
}

// ask runs a function in Run and returns its error, or why there is none: Run has ended, or waits for a disk
// until ctx ends. The function may still run then.
func (d *Driver) ask(ctx context.Context, f func() error) error {
	answer := make(chan error, 1)
	select {
	case d.calls <- func() { answer <- f() }:
	case <-d.ctx.Done():
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// call runs a function in Run. It does nothing if Run has ended.
func (d *Driver) call(f func()) bool {
	select {
	case d.calls <- f:
		return true
	case <-d.ctx.Done():
		return false
	}
}

// describe returns the log as it is now.
func (d *Driver) describe() (l group.Log) {
	if d.config.Links == nil {
		return l
	}
	_ = d.config.Do(func() error { l = d.config.Replicator.Describe(); return nil }) // fails if the flow has ended: Run ends, too
	return l
}

// Close ends the transport and all links. Run must have returned.
func (d *Driver) Close() error {
	d.cancel()
	d.links.Wait()
	return d.transport.Close()
}

// Run takes part in the group until ctx ends. A CutError says that the flow must begin again.
func (d *Driver) Run(ctx context.Context) error {
	defer d.cancel()
	if err := d.enter(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	tick := time.NewTicker(min(max(d.config.Suspect/8, time.Millisecond), askAgain))
	defer tick.Stop()
	last, repeated := time.Now(), time.Time{}
	d.leaderSeen, d.linked = last, last
	for {
		err := d.handle()
		if err == nil && d.toBegin != 0 {
			if err = d.begin(); err == nil {
				err = d.handle()
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case m := <-d.messages:
			d.heardAt[m.From] = time.Now()
			delete(d.lost, m.From)
			d.step(&m)
		case f := <-d.calls:
			f()
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(last) > d.config.Suspect/2 { // this process was away itself
			d.leaderSeen, d.silent.since = now, now
			d.disks.epoch = 0
		}
		last = now
		d.detect(now)
		if err := d.keep(now); err != nil {
			return err
		}
		if now.Sub(repeated) >= d.config.Suspect/4 {
			repeated = now
			d.repeat(now)
			d.endSilent(now)
			d.look(now)
		}
	}
}

// askAgain is the time between two elections that a member asks for when the leader's process has died:
// the first one may come before the others have noticed.
const askAgain = 5 * time.Millisecond

// keep makes a leader go on with a change of the members, and beside a witness without a member that is
// away.
func (d *Driver) keep(now time.Time) error {
	if d.member.Phase() != group.Leading {
		d.leadsSince = time.Time{}
		return nil
	}
	if d.leadsSince.IsZero() {
		d.leadsSince = now
	}
	if !d.member.Keeps() {
		return nil
	}
	heard, p, err := d.followers()
	if err != nil {
		return err
	}
	since := now.Add(-d.config.Suspect)
	away := func(id uint32) bool {
		return heard[id].Before(since) && d.leadsSince.Before(since) || d.dead(id, heard[id], now) || d.standsStill(id, now)
	}
	if err := d.member.Keep(away, p); err != nil && !errors.Is(err, election.ErrChanging) {
		d.log.Warn("the members of the group cannot change now", "err", err)
	}
	return nil
}

// followers returns when the leader last heard each follower over its link, and how far they are. It fails if
// the flow has ended.
func (d *Driver) followers() (heard map[uint32]time.Time, p group.Progress, err error) {
	err = d.config.Do(func() error {
		heard, p = d.config.Links.HeardFrom(), d.config.Replicator.Progress()
		return nil
	})
	return heard, p, err
}

// handle does what the member asks for.
func (d *Driver) handle() error {
	for {
		if err := d.member.Err(); err != nil {
			return err
		}
		r, ok := d.member.Ready()
		if !ok {
			d.show()
			return nil
		}
		if err := d.do(&r); err != nil {
			return err
		}
		d.member.Advance(r)
		if now := [2]uint64{uint64(d.member.Leader()), d.member.Epoch()}; now != d.told {
			if d.member.Leader() != 0 || d.member.Epoch() != d.told[1] { // else this member asks for an election
				d.leaderSeen, d.doubted = time.Now(), time.Time{} // the new leader has the whole of Suspect
			}
			if d.member.Leader() != 0 {
				d.linked = time.Now() // a member that was away longer than unlinked must not ask for an election before it has a link
			}
			d.told = now
			if d.config.Led != nil {
				d.config.Led(d.member.Leader(), d.member.Epoch())
			}
		}
	}
}

// do does a Ready, in order.
func (d *Driver) do(r *group.Ready) error {
	if r.Save {
		if err := d.config.State.Write(d.member.State()); err != nil {
			return err
		}
	}
	if r.EndLinks && d.config.Links != nil {
		d.linked = time.Now()
		if err := d.config.Do(func() error {
			d.config.Replicator.StepDown()
			d.config.Log.StepDown()
			err := d.config.Links.EndAll(errEpoch)
			d.config.Links.Begin(d.config.Replicator.log.End.Position + 1) // older records are read from the segments
			return err
		}); err != nil {
			return err
		}
	}
	if r.Configure != nil && d.config.Links != nil {
		if err := d.config.Do(func() error { d.config.Replicator.Configure(r.Configure); return nil }); err != nil {
			return err
		}
	}
	for i := range r.Messages {
		d.transport.Send(&r.Messages[i])
	}
	d.confirmed(r.Confirmed)
	switch {
	case r.Follow != nil:
		return d.follow(r.Follow)
	case r.Fetch != nil:
		return d.fetch(r.Fetch)
	case r.Begin != 0:
		d.toBegin = r.Begin
	}
	return nil
}

var errEpoch = errors.New("the epoch of the link has ended")

// begin appends the record that begins an epoch, if there is room for it now.
func (d *Driver) begin() error {
	if d.toBegin == 0 || d.toBegin != d.member.Epoch() || d.member.Phase() != group.Beginning {
		d.toBegin = 0
		return nil
	}
	config, done := d.member.Config(), false
	err := d.config.Do(func() (err error) { done, err = d.config.Log.Begin(d.toBegin, &config); return err })
	if err != nil || !done {
		return err
	}
	d.log.Info("this member leads the group", "epoch", d.toBegin)
	d.member.Began(d.toBegin)
	d.toBegin = 0
	return nil
}

// mustCut returns a CutError if the log has records after a position.
func (d *Driver) mustCut(after uint64) error {
	if end := d.describe().End.Position; end > after {
		return &CutError{After: after, Records: end - after}
	}
	return nil
}

// follow gets the leader's records.
func (d *Driver) follow(f *group.Follow) error {
	if err := d.mustCut(f.After); err != nil {
		return err
	}
	w := Want{Member: f.Leader, Epoch: f.Epoch, Next: f.After + 1}
	if err := d.config.Do(func() error {
		d.config.Replicator.Follow(f.Until)
		d.want(&w)
		return nil
	}); err != nil {
		return err
	}
	d.log.Info("asks the leader for records", "member", w.Member, "epoch", w.Epoch, "from", w.Next)
	d.links.Go(func() { _ = d.getRecords(w, nil) }) // it logs its errors
	return nil
}

// fetch gets the records that the leader lacks.
func (d *Driver) fetch(f *group.Fetch) error {
	if err := d.mustCut(f.After); err != nil {
		return err
	}
	w := Want{Member: f.From, Epoch: f.Epoch, Next: f.After + 1, Fetch: true}
	if err := d.config.Do(func() error { d.want(&w); return nil }); err != nil {
		return err
	}
	d.links.Go(func() {
		err := d.getRecords(w, &f.Until)
		d.call(func() {
			if d.describe().End == f.Until {
				d.member.Fetched(f.Epoch)
				return
			}
			d.log.Warn("the leader could not fetch records that it lacks", "member", f.From, "until", f.Until, "err", err)
			d.member.FetchFailed(f.Epoch)
		})
	})
	return nil
}

// awaitFetch ends a link when the log has all records that were to be fetched, or gets none any more: the
// other member may have lost, in a crash, records that it had reported. It reports anew then.
func (d *Driver) awaitFetch(ctx context.Context, end func(), until group.Place) {
	defer end()
	at, since := group.Place{}, time.Now()
	for ctx.Err() == nil {
		now := d.describe().End
		if now != at {
			at, since = now, time.Now()
		}
		if now == until || time.Since(since) > max(4*d.config.Suspect, leastSilence) {
			return
		}
		time.Sleep(500 * time.Microsecond)
	}
}

// want completes what this member wants, as the log is now. It belongs to the worker's thread. What is
// wanted is void once the links are fenced, which only Run does.
func (d *Driver) want(w *Want) {
	p := (*d.peers.Load())[w.Member]
	w.Group, w.Self, w.Spread, w.Name, w.Connect = d.config.Group, d.config.Self, d.config.Spread, p.Name, d.config.Connect
	w.Connect.ServerName = p.Host
	if len(p.Records) > 0 {
		w.Address, w.others = p.Records[0], p.Records[1:]
	}
	w.Of, w.Fence = d.config.Replicator.log.End.Epoch, d.config.Links.Fence()
}

// getRecords gets records of another member until the link ends, or the log ends at a place; nil: none.
func (d *Driver) getRecords(w Want, until *group.Place) error {
	if until == nil && len(d.config.Links.paths) > 1 {
		err := d.overPaths(w)
		d.log.Info("a link has ended", "member", w.Member, "epoch", w.Epoch, "err", err)
		return err
	}
	k, conn, err := d.dialAny(w)
	if err != nil {
		d.log.Warn("no link to a member of the group", "member", w.Member, "epoch", w.Epoch, "err", err)
		return err
	}
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	if until != nil {
		d.links.Go(func() { d.awaitFetch(ctx, cancel, *until) })
	}
	return d.attend(ctx, k, conn)
}

// addressTime is how long an address may take if there are others.
const addressTime = time.Second
