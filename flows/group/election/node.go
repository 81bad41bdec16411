package election

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// Message is a message of raft between two members.
type Message = raftpb.Message

// maxEntries is how many applied entries the state has before they are replaced by a snapshot. The
// state must fit in a slot of its file.
const maxEntries = 16

// Node is one member's part in elections.
type Node struct {
	raw     *raft.RawNode
	storage *raft.MemoryStorage
	self    uint64
	members *raftpb.ConfState // as applied
	applied uint64            // raft's index of the last applied entry
	ready   raft.Ready        // the one that is being handled
	// proposed says that this leader has proposed a change of the members which raft has not handed out yet.
	proposed bool
}

// New makes a node from the state that was last durable. The first state is [First] for a member that
// begins a group, and [Joining] for one that joins it later.
func New(self uint32, s State, log *slog.Logger) (*Node, error) {
	n := &Node{self: uint64(self), storage: raft.NewMemoryStorage()}
	snapshot := proto.Clone(s.Snapshot).(*raftpb.Snapshot)
	if snapshot.GetMetadata().GetIndex() > 0 {
		if err := n.storage.ApplySnapshot(snapshot); err != nil {
			return nil, fmt.Errorf("restore the members of the group: %w", err)
		}
	}
	if err := n.storage.Append(s.Entries); err != nil {
		return nil, fmt.Errorf("restore the changes of members: %w", err)
	}
	if err := n.storage.SetHardState(proto.Clone(s.Hard).(*raftpb.HardState)); err != nil {
		return nil, fmt.Errorf("restore the vote: %w", err)
	}
	n.members, n.applied = snapshot.GetMetadata().GetConfState(), snapshot.GetMetadata().GetIndex()
	var err error
	n.raw, err = raft.NewRawNode(&raft.Config{
		ID: n.self, ElectionTick: 10, HeartbeatTick: 1, Storage: n.storage, Applied: n.applied,
		MaxSizePerMsg: maxMessage, MaxInflightMsgs: 16, PreVote: true,
		StepDownOnRemoval: true, DisableProposalForwarding: true, Logger: logger{log},
	})
	if err != nil {
		return nil, fmt.Errorf("start elections: %w", err)
	}
	return n, nil
}

// maxMessage is the largest size in bytes of the entries in one message.
const maxMessage = 64 << 10

// Campaign begins an election: it asks for pre-votes. It does nothing on a leader, a learner and a
// member that was removed.
func (n *Node) Campaign() error { return n.raw.Campaign() }

// Tick makes the leader repeat its messages. It does nothing on other members.
func (n *Node) Tick() {
	if n.raw.BasicStatus().RaftState != raft.StateLeader {
		return
	}
	var waiting []uint64
	n.raw.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if p.State == tracker.StateSnapshot {
			waiting = append(waiting, id)
		}
	})
	for _, id := range waiting {
		n.raw.ReportSnapshot(id, raft.SnapshotFailure) // it may be lost, and is small: it is sent again
	}
	n.raw.Tick()
}

// ErrBroken means that a message of another member has contradicted what a majority had decided.
// Raft's state is not certain any more: the node must not be used again.
var ErrBroken = errors.New("a message contradicts what this member knows of the group: this member has lost a part of its state, or the one that sent it has, or one of them is of another group")

// Step handles a message from another member.
func (n *Node) Step(m *Message) (err error) {
	defer func() {
		if why := recover(); why != nil { // raft panics in that case
			err = fmt.Errorf("%w (member %d, %v: %v)", ErrBroken, m.GetFrom(), m.GetType(), why)
		}
	}()
	if err = n.raw.Step(m); errors.Is(err, raft.ErrStepPeerNotFound) { // it was removed
		return nil
	}
	return err
}

// Transfer makes the leader hand over to another member.
func (n *Node) Transfer(to uint32) { n.raw.TransferLeader(uint64(to)) }

// Confirm asks the voters whether this member, which leads, still does. Ready.Confirmed says that a majority
// has answered. Numbers go up. Tick repeats what may be lost. A member that does not lead any more gets no answer.
func (n *Node) Confirm(number uint64) {
	n.raw.ReadIndex(binary.BigEndian.AppendUint64(nil, number))
}

// Ready returns what must be done now. ok is false if there is nothing to do. After Ready the caller
// calls Advance before any other method that changes the node.
func (n *Node) Ready() (r Ready, ok bool) {
	if !n.raw.HasReady() {
		return r, false
	}
	n.ready = n.raw.Ready()
	rd := &n.ready
	if !raft.IsEmptySnap(rd.Snapshot) {
		_ = n.storage.ApplySnapshot(rd.Snapshot) // refuses older ones only
		n.members, n.applied = rd.Snapshot.GetMetadata().GetConfState(), rd.Snapshot.GetMetadata().GetIndex()
	}
	_ = n.storage.Append(rd.Entries) // never fails
	n.proposed = false               // it is among the entries, or another leader was elected
	if !raft.IsEmptyHardState(rd.HardState) {
		_ = n.storage.SetHardState(rd.HardState) // never fails
	}
	if rd.MustSync || !raft.IsEmptySnap(rd.Snapshot) {
		r.Save = true
	}
	r.Messages = rd.Messages
	for _, s := range rd.ReadStates {
		if len(s.RequestCtx) == 8 {
			r.Confirmed = max(r.Confirmed, binary.BigEndian.Uint64(s.RequestCtx))
		}
	}
	return r, true
}

// Advance says that the last Ready was handled. The error is ErrBroken if the leader has sent a change of
// the members that cannot be made.
func (n *Node) Advance() (err error) {
	defer func() {
		if why := recover(); why != nil { // raft panics in that case
			err = fmt.Errorf("%w (a change of the members: %v)", ErrBroken, why)
		}
	}()
	for _, e := range n.ready.CommittedEntries {
		if err := n.apply(e); err != nil {
			return err
		}
	}
	n.raw.Advance(n.ready)
	n.ready = raft.Ready{}
	n.compact()
	return nil
}

// apply applies an entry that a majority has.
func (n *Node) apply(e *raftpb.Entry) error {
	n.applied = e.GetIndex()
	if e.GetType() != raftpb.EntryConfChangeV2 {
		return nil
	}
	var c raftpb.ConfChangeV2
	if err := proto.Unmarshal(e.GetData(), &c); err != nil {
		return fmt.Errorf("%w (entry %d cannot be read: %v)", ErrBroken, n.applied, err)
	}
	n.members = n.raw.ApplyConfChange(&c)
	_, _ = n.storage.CreateSnapshot(n.applied, n.members, nil) // for members that join
	return nil
}

// compact replaces applied entries by a snapshot when there are many.
func (n *Node) compact() {
	first, _ := n.storage.FirstIndex() // never fails
	if n.applied < first+maxEntries {
		return
	}
	_, _ = n.storage.CreateSnapshot(n.applied, n.members, nil) // fails if it exists
	_ = n.storage.Compact(n.applied)
}

// Ready is what a caller must do after a call: if Save, make [Node.State] durable; then send the
// messages.
type Ready struct {
	Save      bool
	Messages  []*Message
	Confirmed uint64 // this member led when it was asked with this number, and with smaller ones; 0: nothing new
}

// Epoch returns the current epoch. It never decreases.
func (n *Node) Epoch() uint64 { return n.raw.BasicStatus().GetTerm() }

// Fresh reports whether no election has taken place yet.
func (n *Node) Fresh() bool { return n.Epoch() <= firstEpoch }

// Leader returns the leader of the current epoch, 0 if it is not known.
func (n *Node) Leader() uint32 { return uint32(n.raw.BasicStatus().Lead) }

// Leads reports whether this member leads the current epoch.
func (n *Node) Leads() bool { return n.raw.BasicStatus().RaftState == raft.StateLeader }

// Newer reports whether raft's log of a candidate is newer than this member's. Raft then refuses
// this member's own candidacy.
func (n *Node) Newer(m *Message) bool {
	last, _ := n.storage.LastIndex()
	term, _ := n.storage.Term(last)
	return m.GetLogTerm() > term || m.GetLogTerm() == term && m.GetIndex() > last
}

// Members returns the members as they were last applied.
func (n *Node) Members() Members {
	return Members{
		Voters: numbers(n.members.GetVoters()), Outgoing: numbers(n.members.GetVotersOutgoing()),
		Learners: numbers(append(slices.Clone(n.members.GetLearners()), n.members.GetLearnersNext()...)),
	}
}

func numbers(ids []uint64) (all []uint32) {
	for _, id := range ids {
		all = append(all, uint32(id))
	}
	slices.Sort(all)
	return all
}

// Members are the numbers of the members of a group, each list in order.
type Members struct {
	Voters   []uint32
	Outgoing []uint32 // voters before the change that is under way; empty: there is none
	Learners []uint32 // do not vote, and do not count
}

// All returns every member once, in order.
func (m Members) All() []uint32 {
	all := slices.Concat(m.Voters, m.Outgoing, m.Learners)
	slices.Sort(all)
	return slices.Compact(all)
}

// Change is a change of the members. A member that is in neither list does not change.
type Change struct {
	Voters   []uint32 // become voters
	Learners []uint32 // become learners
	Remove   []uint32
}

// Apply returns the members as they are after a change.
func (c *Change) Apply(to Members) Members {
	gone := slices.Concat(c.Voters, c.Learners, c.Remove)
	without := func(ids []uint32) []uint32 {
		return slices.DeleteFunc(slices.Clone(ids), func(id uint32) bool { return slices.Contains(gone, id) })
	}
	m := Members{Voters: append(without(to.Voters), c.Voters...), Learners: append(without(to.Learners), c.Learners...)}
	slices.Sort(m.Voters)
	slices.Sort(m.Learners)
	return m
}

// ErrChanging means that a change of the members is under way.
var ErrChanging = errors.New("the group is still busy with its last change of members")

// Changing reports whether there is a change of the members that is not applied yet. On a new leader it may
// be one of an earlier leader.
func (n *Node) Changing() bool {
	if n.proposed {
		return true
	}
	last, _ := n.storage.LastIndex() // never fails
	if last <= n.applied {
		return false
	}
	entries, _ := n.storage.Entries(n.applied+1, last+1, ^uint64(0)) // they are there
	return slices.ContainsFunc(entries, func(e *raftpb.Entry) bool { return e.GetType() == raftpb.EntryConfChangeV2 })
}

// propose proposes a change of the members. Raft would ignore a second one, and one that comes before the
// leader's first entry is applied.
func (n *Node) propose(c *raftpb.ConfChangeV2) error {
	if term, err := n.storage.Term(n.applied); n.Changing() || err != nil || term != n.Epoch() {
		return ErrChanging
	}
	if err := n.raw.ProposeConfChange(c); err != nil {
		return err
	}
	n.proposed = true
	return nil
}

// Begin begins a change of the members. Both the old and the new voters count until End. Only the
// leader may call it.
func (n *Node) Begin(c Change) error {
	to := &raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransitionJointExplicit.Enum()}
	for _, l := range []struct {
		kind raftpb.ConfChangeType
		ids  []uint32
	}{{raftpb.ConfChangeAddNode, c.Voters}, {raftpb.ConfChangeAddLearnerNode, c.Learners}, {raftpb.ConfChangeRemoveNode, c.Remove}} {
		for _, id := range l.ids {
			to.Changes = append(to.Changes, &raftpb.ConfChangeSingle{Type: l.kind.Enum(), NodeId: new(uint64(id))})
		}
	}
	return n.propose(to)
}

// End ends a change of the members: only the new voters count.
func (n *Node) End() error { return n.propose(&raftpb.ConfChangeV2{}) }

// logger passes on what raft logs. Raft's information is for debugging.
type logger struct{ to *slog.Logger }

func (l logger) log(level slog.Level, text string) {
	l.to.Log(context.Background(), level, "elections: "+text)
}

func (l logger) Debug(v ...any)                   { l.log(slog.LevelDebug, fmt.Sprint(v...)) }
func (l logger) Debugf(format string, v ...any)   { l.Debug(fmt.Sprintf(format, v...)) }
func (l logger) Info(v ...any)                    { l.log(slog.LevelDebug, fmt.Sprint(v...)) }
func (l logger) Infof(format string, v ...any)    { l.Debug(fmt.Sprintf(format, v...)) }
func (l logger) Warning(v ...any)                 { l.log(slog.LevelInfo, fmt.Sprint(v...)) }
func (l logger) Warningf(format string, v ...any) { l.Warning(fmt.Sprintf(format, v...)) }
func (l logger) Error(v ...any)                   { l.log(slog.LevelError, fmt.Sprint(v...)) }
func (l logger) Errorf(format string, v ...any)   { l.Error(fmt.Sprintf(format, v...)) }
func (l logger) Fatal(v ...any)                   { panic(fmt.Sprint(v...)) }
func (l logger) Fatalf(format string, v ...any)   { panic(fmt.Sprintf(format, v...)) }
func (l logger) Panic(v ...any)                   { panic(fmt.Sprint(v...)) }
func (l logger) Panicf(format string, v ...any)   { panic(fmt.Sprintf(format, v...)) }
