package election

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// State is what a member must keep on its disk: its vote, and the newest changes of the members.
type State struct {
	Hard     *raftpb.HardState
	Snapshot *raftpb.Snapshot
	Entries  []*raftpb.Entry
}

// First returns the first state of a group. All its first members must begin with the same one.
func First(voters []uint32) State {
	c := &raftpb.ConfState{AutoLeave: new(false)}
	for _, v := range voters {
		c.Voters = append(c.Voters, uint64(v))
	}
	return State{
		Hard:     &raftpb.HardState{Term: new(uint64(firstEpoch)), Vote: new(uint64(0)), Commit: new(uint64(1))},
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{ConfState: c, Index: new(uint64(1)), Term: new(uint64(firstEpoch))}},
	}
}

// Joining returns the first state of a member that joins a group. It learns the members from the leader.
func Joining() State {
	return State{
		Hard:     &raftpb.HardState{Term: new(uint64(0)), Vote: new(uint64(0)), Commit: new(uint64(0))},
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{ConfState: &raftpb.ConfState{AutoLeave: new(false)}, Index: new(uint64(0)), Term: new(uint64(0))}},
	}
}

// Epoch returns the epoch in which the state was saved.
func (s State) Epoch() uint64 { return s.Hard.GetTerm() }

// Fresh reports whether no election has taken place yet.
func (s State) Fresh() bool { return s.Hard.GetTerm() <= firstEpoch }

// Voters returns the voters of the last snapshot, in order.
func (s State) Voters() []uint32 { return numbers(s.Snapshot.GetMetadata().GetConfState().GetVoters()) }

// firstEpoch is the epoch before the first election.
const firstEpoch = 1

// State returns the state to make durable.
func (n *Node) State() State {
	s := State{}
	hard, _, _ := n.storage.InitialState() // never fails
	s.Hard = proto.Clone(hard).(*raftpb.HardState)
	s.Snapshot, _ = n.storage.Snapshot()
	first := s.Snapshot.GetMetadata().GetIndex() + 1
	last, _ := n.storage.LastIndex() // never fails
	if last >= first {
		s.Entries, _ = n.storage.Entries(first, last+1, ^uint64(0))
	}
	return s
}

// Append appends the state to dst: three kinds of protocol buffers of raft, each behind its length in
// 4 bytes, little-endian.
func (s State) Append(dst []byte) ([]byte, error) {
	all := []proto.Message{s.Hard, s.Snapshot}
	for _, e := range s.Entries {
		all = append(all, e)
	}
	for _, m := range all {
		b, err := proto.Marshal(m)
		if err != nil {
			return dst, fmt.Errorf("encode the state of elections: %w", err)
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b)))
		dst = append(dst, b...)
	}
	return dst, nil
}

var errState = errors.New("it is not a state of elections")

// ParseState reads what Append wrote.
func ParseState(b []byte) (State, error) {
	s := State{Hard: &raftpb.HardState{}, Snapshot: &raftpb.Snapshot{}}
	for n := 0; len(b) > 0; n++ {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.LittleEndian.Uint32(b)) {
			return s, fmt.Errorf("%w: part %d is cut short", errState, n+1)
		}
		length := binary.LittleEndian.Uint32(b)
		part := b[4 : 4+length]
		b = b[4+length:]
		var to proto.Message
		switch n {
		case 0:
			to = s.Hard
		case 1:
			to = s.Snapshot
		default:
			e := &raftpb.Entry{}
			s.Entries = append(s.Entries, e)
			to = e
		}
		if err := proto.Unmarshal(part, to); err != nil {
			return s, fmt.Errorf("%w: part %d: %w", errState, n+1, err)
		}
	}
	return s, s.check()
}

// check reports whether raft can begin with the state. Raft panics if it cannot.
func (s State) check() error {
	snapshot := s.Snapshot.GetMetadata()
	if snapshot.GetIndex() == 0 && len(s.Entries) > 0 || snapshot.GetIndex() > 0 && len(snapshot.GetConfState().GetVoters()) == 0 {
		return fmt.Errorf("%w: it has no members", errState)
	}
	last, term := snapshot.GetIndex(), snapshot.GetTerm()
	for _, e := range s.Entries {
		if e.GetIndex() != last+1 || e.GetTerm() < term {
			return fmt.Errorf("%w: entry %d follows entry %d", errState, e.GetIndex(), last)
		}
		last, term = e.GetIndex(), e.GetTerm()
	}
	if c := s.Hard.GetCommit(); c < snapshot.GetIndex() || c > last || s.Hard.GetTerm() < term {
		return fmt.Errorf("%w: %d entries are committed, and it has %d to %d", errState, c, snapshot.GetIndex(), last)
	}
	return nil
}
