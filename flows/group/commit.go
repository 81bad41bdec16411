package group

import (
	"slices"

	"go.etcd.io/raft/v3/quorum"

	"github.com/unifiedd/unifiedd/flows/group/election"
)

// Config says which members count.
type Config struct {
	Members   election.Members
	Witnesses []uint32 // members without records, in any order
	// Awaited are learners that records wait for, in a group with a witness: each of them is to become a
	// voter, which must have every committed record.
	Awaited []uint32
}

// Witness reports whether a member is a witness.
func (c *Config) Witness(member uint32) bool { return slices.Contains(c.Witnesses, member) }

// Holders returns the members with records, in order.
func (c *Config) Holders() []uint32 {
	return slices.DeleteFunc(c.Members.All(), c.Witness)
}

// voters returns the voters that have records, and whether there is a witness among the voters.
func (c *Config) voters(of []uint32) (holders []uint32, witness bool) {
	holders = slices.DeleteFunc(slices.Clone(of), c.Witness)
	return holders, len(holders) < len(of)
}

// enough reports whether some members are enough to know every committed record: a majority of the
// voters, or one voter with records if there is a witness.
func (c *Config) enough(has func(uint32) bool) bool {
	for _, of := range [][]uint32{c.Members.Voters, c.Members.Outgoing} {
		if len(of) == 0 {
			continue
		}
		holders, witness := c.voters(of)
		need := len(of)/2 + 1
		if witness {
			need = 1
		}
		for _, id := range holders {
			if has(id) {
				need--
			}
		}
		if need > 0 {
			return false
		}
	}
	return true
}

// Commits reports whether a leader can go on with some members, itself included. In a group with a
// witness it can go on without records at the others once the witness agrees.
func (c *Config) Commits(has func(uint32) bool) bool {
	for _, of := range [][]uint32{c.Members.Voters, c.Members.Outgoing} {
		need := len(of)/2 + 1
		for _, id := range of {
			if has(id) {
				need--
			}
		}
		if len(of) > 0 && need > 0 {
			return false
		}
	}
	return true
}

// Witnessed reports whether there is a witness among the voters.
func (c *Config) Witnessed() bool {
	_, witness := c.voters(c.Members.Voters)
	return witness
}

// all reports whether every voter with records is among some members. In a group with a witness it asks for
// learners, too: one may have been a voter until just now, and have what the others have forgotten.
func (c *Config) all(has func(uint32) bool) bool {
	lists := [][]uint32{c.Members.Voters, c.Members.Outgoing}
	if c.Witnessed() {
		lists = append(lists, c.Members.Learners)
	}
	for _, of := range lists {
		for _, id := range of {
			if !c.Witness(id) && !has(id) {
				return false
			}
		}
	}
	return true
}

// Commits computes on the leader which records are committed. It belongs to the thread that handles
// the followers' progress. It does not allocate after Configure.
type Commits struct {
	first     uint64 // position of the record that began the leader's epoch
	committed uint64
	joint     quorum.JointConfig
	every     []uint32 // with a witness: the voters that must all have a record; nil: a majority is enough
	safe      progress
}

// progress is how far each member has the log, as safely as the log promises.
type progress map[uint64]quorum.Index

// AckedIndex implements quorum.AckedIndexer.
func (p progress) AckedIndex(voter uint64) (quorum.Index, bool) {
	at, ok := p[voter]
	return at, ok
}

// NewCommits makes the computation for an epoch that began with the record at position first.
func NewCommits(first, committed uint64, c *Config) *Commits {
	t := &Commits{first: first, committed: committed, safe: progress{}}
	t.Configure(c)
	return t
}

// Configure changes which members count, and returns the committed position.
//
// In a group with a witness, one report is enough for a new leader. So a record is committed when every
// voter of the newest members has it: one of them reports in each election from now on.
func (t *Commits) Configure(c *Config) uint64 {
	t.joint, t.every = quorum.JointConfig{}, nil
	for i, of := range [][]uint32{c.Members.Voters, c.Members.Outgoing} {
		if len(of) > 0 {
			t.joint[i] = quorum.MajorityConfig{}
		}
		for _, id := range of {
			t.joint[i][uint64(id)] = struct{}{}
		}
	}
	if holders, witness := c.voters(c.Members.Voters); witness {
		t.every = append(holders, c.Awaited...)
	}
	return t.advance()
}

// Progress is how far the members of a group are, for changes of the members.
type Progress struct {
	Held      uint64            // see Commits.Held
	Open      bool              // see Commits.Open
	Committed uint64            // committed position; before Open it is a lower bound
	Safe      map[uint32]uint64 // by member: see Commits.Safe
	Disk      map[uint32]uint64 // by member: position up to which its disk has all records; the caller knows it
	Awaited   []uint32          // members that records wait for, in a group with a witness
}

// Complete reports whether a member has every committed record, and records wait for it.
func (p *Progress) Complete(member uint32) bool {
	return p.Open && slices.Contains(p.Awaited, member) && p.Safe[member] >= p.Committed
}

// Progress returns how far the members are. It allocates.
func (t *Commits) Progress() Progress {
	p := Progress{Held: t.Held(), Open: t.Open(), Committed: t.committed, Safe: map[uint32]uint64{}, Awaited: slices.Clone(t.every)}
	for id, at := range t.safe {
		p.Safe[uint32(id)] = uint64(at)
	}
	return p
}

// Safe says that a member has all records up to a position as safely as the log promises, and returns
// the committed position.
func (t *Commits) Safe(member uint32, position uint64) uint64 {
	t.safe[uint64(member)] = quorum.Index(position)
	return t.advance()
}

// Committed returns the committed position.
func (t *Commits) Committed() uint64 { return t.committed }

// Open reports whether the record that began the epoch is committed: the leader may take records
// from clients.
func (t *Commits) Open() bool { return t.committed >= t.first }

// advance moves the committed position. Records of earlier epochs are committed by one of this epoch
// after them.
func (t *Commits) advance() uint64 {
	if held := t.Held(); held >= t.first && held > t.committed {
		t.committed = held
	}
	return t.committed
}

// Held returns the position up to which enough of the present voters have all records. After a
// change of the members it may be less than the committed position.
func (t *Commits) Held() uint64 {
	if t.every == nil {
		return uint64(t.joint.CommittedIndex(t.safe))
	}
	least := t.safe[uint64(t.every[0])]
	for _, id := range t.every[1:] {
		least = min(least, t.safe[uint64(id)])
	}
	return uint64(least)
}
