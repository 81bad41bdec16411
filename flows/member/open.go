package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/flows/group/election"
	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/replica"
	"github.com/unifiedd/unifiedd/flows/sink/disk"
	"github.com/unifiedd/unifiedd/flows/source/message"
	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

const (
	// window is how many records of the leader may be in flight to this member.
	window = 256
	// copies is how many frames there are for records that are read from segments.
	copies = 64
	// landing is as in package message: block headers have room before a record.
	landing = pcapng.PacketHeaderLen
)

// Member is a flow's part in its group, while it is opened.
type Member struct {
	source  *Source
	logger  *slog.Logger
	group   *config.Replicas
	own     int    // place among the members of the configuration
	self    uint32 // number
	level   protocol.Durability
	path    string
	log     group.Log
	lag     int
	log0    journal.End
	dir     *newfile.Dir
	file    *replica.StateFile // nil: the member is new
	state   election.State
	clients int // most clients of the flow
}

// Prepare reads how a log ends, for a member of a group. It returns the end at which the run begins.
func Prepare(e *pipeline.Env, level protocol.Durability) (*Member, error) {
	m, err := prepare(e, level)
	if err != nil {
		return nil, err
	}
	return m, m.readEnd(e)
}

// prepare opens the state of a member.
func prepare(e *pipeline.Env, level protocol.Durability) (*Member, error) {
	g := e.Flow.To.Replicas
	m := &Member{logger: e.Log, group: g, level: level, clients: e.Flow.From.Clients, path: cmp.Or(e.Flow.To.Device, e.Flow.To.File)}
	if m.own = g.Own(); m.own < 0 {
		return nil, fmt.Errorf("member %q is not among the members of group %s", g.Self, g.Name)
	}
	m.self = g.NumberOf(m.own)
	return m, m.openState(e)
}

// openState opens the member's vote, and checks that the group is still the one that the member knows.
func (m *Member) openState(e *pipeline.Env) error {
	if e.Flow.To.Create {
		if err := os.MkdirAll(filepath.Dir(m.path), 0o750); err != nil {
			return fmt.Errorf("to.create: %w", err)
		}
	}
	dir, err := newfile.OpenDir(filepath.Dir(m.path))
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w (mount the disk, create the directory, or set to.create: true)", err)
	}
	if err != nil {
		return err
	}
	e.Undo.Add(dir.Close)
	m.dir = dir
	m.file, m.state, err = replica.OpenState(dir, m.stateName(), m.self)
	if errors.Is(err, replica.ErrNoState) {
		m.state, err = m.first()
		return err
	}
	if err != nil {
		return m.lost(e, err)
	}
	e.Undo.Add(m.file.Close)
	for _, id := range m.state.Voters() {
		if placeOf(m.group, id) < 0 {
			m.logger.Warn("a member of the group is not in the configuration: this member does not talk to it", "member", id)
		}
	}
	return nil
}

// makeState makes the state of a member that has none.
func (m *Member) makeState(e *pipeline.Env) (*replica.StateFile, error) {
	file, err := replica.MakeState(m.dir, m.stateName(), m.self, m.state)
	if err == nil {
		m.file = file
	}
	return file, err
}

// lost adds to an error what to do with a member that has lost its vote.
func (m *Member) lost(e *pipeline.Env, err error) error {
	if errors.Is(err, replica.ErrLost) {
		err = fmt.Errorf("member %s of group %s: %w. %s", m.group.Self, m.group.Name, err, replaceIt(e.Flow.Name, m.group.Self))
	}
	return err
}

// first returns the first state of a member: it begins the group with others, or joins it.
func (m *Member) first() (election.State, error) {
	if m.group.Members[m.own].Joins {
		return election.Joining(), nil
	}
	var voters []uint32
	for i, r := range m.group.Members {
		if !r.Joins {
			voters = append(voters, m.group.NumberOf(i))
		}
	}
	if len(voters) < leastVoters {
		return election.State{}, fmt.Errorf("group %s cannot begin with %d members: %d at least must not have joins", m.group.Name, len(voters), leastVoters)
	}
	return election.First(voters), nil
}

// leastVoters is how many members begin a group, a witness included.
const leastVoters = 3

// placeOf returns the place of a member in the configuration; -1: it is not there.
func placeOf(g *config.Replicas, number uint32) int {
	for i := range g.Members {
		if g.NumberOf(i) == number {
			return i
		}
	}
	return -1
}

// nameOf returns the name of a member, or its number.
func nameOf(g *config.Replicas, number uint32) string {
	if i := placeOf(g, number); i >= 0 {
		return g.Members[i].Name
	}
	return fmt.Sprint(number)
}

func (m *Member) stateName() string { return filepath.Base(m.path) + replica.StateSuffix }

// readEnd finds the end of the log. A log of a group has no gaps: it ends before the first one, and the
// member is recovering.
func (m *Member) readEnd(e *pipeline.Env) error {
	end, err := journal.TailBefore(m.path, cmp.Or(e.Before, ^uint64(0)))
	if err != nil {
		return err
	}
	if end.Next > 1 && !end.Grouped() {
		return fmt.Errorf("the log %s has records from before the group: a group begins with an empty log (configure another file)", m.path)
	}
	if m.file == nil && end.Epochs.Last > 0 || m.file != nil && m.state.Epoch() < end.Epochs.Last {
		return m.lost(e, fmt.Errorf("the log %s is of a member that has had epoch %d, and its state %s is missing or older: %w", m.path, end.Epochs.Last, m.stateName(), replica.ErrLost))
	}
	recovering := m.file != nil && end.Manifest == nil && !m.state.Fresh() // it has lost its log
	if len(end.Gaps) > 0 {
		e.Log.Error("records that were durable are missing from the log: the group has them", "err", end.Gaps[0])
		recovering = true
		if end, err = journal.TailBefore(m.path, end.Gaps[0].Position); err != nil {
			return err
		}
	}
	if k := end.Manifest; k != nil {
		recovering = recovering || k.Flags&journal.FlagRecovering != 0 || end.Next < k.Next && e.Before == 0 || m.forgot(k)
	}
	m.log0 = end
	m.log = group.Log{End: group.Place{Epoch: end.Epochs.Last, Position: end.Next - 1}, Recovering: recovering}
	for _, one := range end.Epochs.Table {
		m.log.Table = append(m.log.Table, group.Span{Epoch: one.Number, First: one.First})
	}
	if k := end.Manifest; k != nil && k.Flags&journal.FlagGroup != 0 {
		m.log.Committed = min(k.Committed, m.log.End.Position)
	}
	return nil
}

// forgot reports whether the last run has ended in a way that may have cost records that it had acknowledged. How safe
// these were is what that run has promised, whatever the configuration says now.
func (m *Member) forgot(k *journal.Manifest) bool {
	if k.Flags&journal.FlagEnded != 0 {
		return false
	}
	switch cmp.Or(k.Level(), m.level) {
	case protocol.Received:
		return true
	case protocol.Written:
		return !journal.SameBoot(k.Boot)
	}
	return false
}

// End is where the run begins.
func (m *Member) End() journal.End { return m.log0 }

// Reserve is how many more frames the flow needs at least, for records of the leader, and at most, for
// followers that are slow. It leaves extents for records that are read from segments, if records land in
// extents: the source would take all.
func (m *Member) Reserve(e *pipeline.Env) (least, most int) {
	if !message.InFrames(e.Region, e.Flow.From.Message) {
		e.Shared.Quota.Extents = max(0, e.Shared.Quota.Extents-copies)
	}
	m.lag = max(window, int(uint64(m.group.Lag)/uint64(e.Region.FrameSize())))
	paths := 1 + len(e.Flow.From.Paths) // receives stay with the device of a path that was left
	return (1 + paths) * window, paths*window + m.lag
}

// Source is what the source of clients needs.
func (m *Member) Source() *message.Member {
	return &message.Member{Refuse: m.refuse, Replicate: m.replicate, Standby: m.standby}
}

// refuse says why a client may not connect now. While there is no leader, or while this one begins its epoch,
// it waits a moment: so the client need not try again and again. A leader asks the others whether it still leads
// before it tells a client which of its messages the log has: another one may know more by now.
func (m *Member) refuse() error {
	s := m.source
	if s == nil {
		return fmt.Errorf("not_leader: %w", protocol.NotLeader)
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(maxElection, 2*m.group.Suspect))
	defer cancel()
	defer s.seat.waiting.Add(-1)
	for wait := s.seat.waiting.Add(1) <= int64(m.clients); ; {
		changed := s.seat.changed.wait()
		if s.open.Load() && s.seat.driver.Confirm(ctx) == nil {
			return nil
		}
		leader, text := s.seat.leader()
		if wait && !s.stopped.Load() && (leader == 0 || leader == m.self) {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
			}
		}
		return fmt.Errorf("%s: %w", text, protocol.NotLeader)
	}
}

// standby waits until this member leads and takes messages, for a client with a connection to each member. It asks the
// others whether this member still leads while they get the first record of the epoch.
func (m *Member) standby(ctx context.Context) error {
	sure := uint64(0) // epoch that this member leads, as a majority has said since the client came
	for s := m.source; s != nil; {
		changed, again := s.seat.changed.wait(), time.Duration(time.Hour)
		if epoch := s.begun.Load(); epoch != 0 && epoch != sure {
			asking, cancel := context.WithTimeout(ctx, maxElection)
			err := s.seat.driver.Confirm(asking)
			cancel()
			if again = confirmAgain; err == nil {
				sure = epoch
				continue
			}
		} else if epoch != 0 && s.open.Load() {
			return nil
		}
		late := time.NewTimer(again)
		select {
		case <-changed:
		case <-late.C:
		case <-ctx.Done():
			late.Stop()
			return context.Cause(ctx)
		}
		late.Stop()
	}
	return protocol.NotLeader
}

// maxElection is the longest time that a client waits for the end of an election. It is shorter than a client waits for
// the answer before it takes the member for one that hangs. confirmAgain is the time between two questions whether this
// member still leads.
const maxElection, confirmAgain = 200 * time.Millisecond, 10 * time.Millisecond

// Connect joins source and sink of the flow, and opens the member's links.
func (m *Member) Connect(e *pipeline.Env, clients *message.Source) (*Source, error) {
	s := &Source{clients: clients, region: e.Region, self: m.self, heartbeat: m.group.Heartbeat, base: m.log.End.Position, landing: landing, err: e.Err, do: e.Do, acknowledge: string(e.Flow.To.Acknowledge), deposed: e.Deposed}
	s.batch.Frames = make([]umem.Frame, pipeline.Burst)
	s.end.Set(s.base)
	s.committed.Set(m.log.Committed)
	m.lag = min(m.lag, (clients.Spare()-window*(1+len(e.Flow.From.Paths)))/2)
	hold := 1
	for hold < 2*clients.Spare() {
		hold *= 2
	}
	stock := 0
	if e.Flow.To.Layout == config.LayoutSlot {
		stock = pipeline.Burst
	}
	var err error
	s.links, err = replica.Open(replica.Config{
		Name: e.Name(), Worker: e.Holder, Endpoint: clients.Device().In(e.Flow.From.Class), Others: clients.Further(e.Flow.From.Class), Links: 4 * len(m.group.Members), Message: protocol.HeaderLen + uint32(e.Flow.From.Message),
		Landing: landing, Window: window, Hold: hold, Lag: m.lag, Copies: copies, Stock: stock, Level: m.level, Heartbeat: m.group.Heartbeat, Free: clients.Free(), Events: e.Events,
	})
	if err != nil {
		return nil, err
	}
	e.Undo.Add(s.links.Close)
	frames := make([]umem.Frame, stock)
	if !clients.Free().Pop(frames) {
		return nil, fmt.Errorf("the flow has %d frames for messages, and its disk needs %d: raise region.size", clients.Free().Len(), stock)
	}
	s.links.Returned().Push(frames...)
	s.replicator = replica.NewReplicator(s.links, m.self, m.log, &e.Deposed.Fenced)
	m.source = s
	s.seat, err = m.openDriver(e, s)
	return s, err
}

// replicate answers another member that wants records.
func (m *Member) replicate(device int, q *connect.Request, h *protocol.Hello) {
	s := m.source
	if s == nil {
		_ = q.Refuse(protocol.Closing.Error()) // fails only if it was answered
		return
	}
	err := s.seat.driver.Serve(device, q, h, func(from uint64) (replica.Records, func() error, error) {
		l, err := journal.Open(m.path)
		if err != nil {
			return nil, nil, err
		}
		r := l.Uncommitted(from)
		return r, func() error { return errors.Join(r.Close(), l.Close()) }, nil
	})
	if err != nil {
		m.logger.Warn("a member gets no more records", "member", h.Participant, "peer", q.Peer().Addr.String(), "err", err)
	}
}

// Sink wraps the writer of the log.
func (m *Member) Sink(w *disk.Writer) *Sink {
	m.source.writer = w
	return &Sink{Writer: w, source: m.source}
}

// Manifest writes what a group's log has in its manifest in addition.
func (m *Member) Manifest(n *journal.Manifest) (changed bool) {
	table, committed, recovering, before := m.log.Table, m.log.Committed, m.log.Recovering, n.Flags
	if s := m.source; s != nil {
		shown := s.replicator.Shown()
		table, committed, recovering = shown.Table, shown.Committed, shown.Recovering
	}
	n.Flags = n.Flags&^journal.FlagRecovering | journal.FlagGroup
	if recovering {
		n.Flags |= journal.FlagRecovering
	}
	n.SetLevel(m.level)
	changed = n.Flags != before || n.Committed != committed || n.Self != m.self || len(table) > 0 && (len(n.Epochs) == 0 || n.Epochs[len(n.Epochs)-1].Number != table[len(table)-1].Epoch)
	n.Committed, n.Self, n.Epochs = committed, m.self, nil
	for _, one := range table {
		n.Epochs = append(n.Epochs, journal.Epoch{Number: one.Epoch, First: one.First})
	}
	return changed
}
