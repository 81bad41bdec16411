package replica

import (
	"encoding/binary"
	"maps"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// Replicator is the part of a member that belongs to the worker's thread: what the log is, how far it
// is safe, and on the leader what is committed.
type Replicator struct {
	links *Links
	self  uint32

	log     group.Log
	commits *group.Commits    // nil: this member does not lead
	others  uint64            // of the leader: the last position that another member has confirmed
	fenced  *atomic.Uint64    // records of this leader that no other member had confirmed when a later epoch began
	disks   map[uint32]uint64 // of the leader: by member, the position up to which its disk has all records
	until   uint64            // a recovering follower is complete with the records up to here; 0: not known
	safe    protocol.Have     // of this member
	shows   uint64            // position up to which readers of this member's log may go

	shown    atomic.Pointer[group.Log]
	onShow   func() // is called when it has changed; nil: nobody asks
	showed   time.Time
	stopping bool // each change is shown at once
}

// Shown returns the log as the last Round has left it; its Committed is as far as readers may go. Any goroutine may call it; the result does not
// change.
func (r *Replicator) Shown() group.Log { return *r.shown.Load() }

// show publishes the log when it has changed in a way that the manifest keeps: not more than once in
// a while, because it copies the table.
func (r *Replicator) show() {
	last := r.shown.Load()
	if last != nil && last.Committed == r.shows && last.Recovering == r.log.Recovering && len(last.Table) == len(r.log.Table) && (len(last.Table) == 0 || last.Table[len(last.Table)-1] == r.log.Table[len(r.log.Table)-1]) {
		return
	}
	if last != nil && last.Recovering == r.log.Recovering && len(last.Table) == len(r.log.Table) && !r.stopping && r.links.now.Sub(r.showed) < showEvery {
		return
	}
	r.showed = r.links.now
	l := r.Describe()
	l.Committed = r.shows
	r.shown.Store(&l)
	if r.onShow != nil {
		r.onShow()
	}
}

// OnShow makes the replicator call a function on the worker's thread when Shown has changed. It comes before the first Round.
func (r *Replicator) OnShow(f func()) { r.onShow = f }

// Stop says that the member stops. From now on each change is shown at once, so that the last manifest has the last
// committed position: what reads the log of a member that is stopped goes no further.
func (r *Replicator) Stop() { r.stopping = true }

// showEvery is the least time between two copies of the log's description.
const showEvery = 20 * time.Millisecond

// NewReplicator makes the part of a member whose log is as described. To fenced it adds the records that
// this member has appended as the leader, and that no other one had confirmed when a later epoch began.
func NewReplicator(l *Links, self uint32, log group.Log, fenced *atomic.Uint64) *Replicator {
	r := &Replicator{links: l, self: self, log: log, fenced: fenced, shows: log.Committed}
	r.show()
	return r
}

// Describe describes the log. The result does not change.
func (r *Replicator) Describe() group.Log {
	l := r.log
	l.Table = append(group.Table(nil), l.Table...)
	return l
}

// Took says that records from the incoming link are in the log, in order.
func (r *Replicator) Took(records []umem.Frame) {
	for _, f := range records {
		header := r.links.region.At(f.Addr, protocol.HeaderLen)
		r.log.Append(group.Place{Epoch: uint64(binary.BigEndian.Uint32(header[56:])), Position: binary.BigEndian.Uint64(header[24:])})
	}
}

// Appended says that the leader has appended records up to a position.
func (r *Replicator) Appended(position uint64) {
	r.log.End.Position = max(r.log.End.Position, position)
}

// Lead says that this member leads an epoch, whose first record is at a position.
func (r *Replicator) Lead(epoch, position uint64, c *group.Config) {
	r.log.Append(group.Place{Epoch: epoch, Position: position})
	r.commits, r.others, r.disks = group.NewCommits(position, r.log.Committed, c), position-1, map[uint32]uint64{}
}

// End returns the position of the last record.
func (r *Replicator) End() uint64 { return r.log.End.Position }

// Committed returns the committed position.
func (r *Replicator) Committed() uint64 { return r.log.Committed }

// Leads reports whether this member leads.
func (r *Replicator) Leads() bool { return r.commits != nil }

// Open reports whether this member leads and may take records from clients.
func (r *Replicator) Open() bool { return r.commits != nil && r.commits.Open() }

// Progress returns how far the members are, on the leader. It allocates.
func (r *Replicator) Progress() (p group.Progress) {
	if r.commits != nil {
		p = r.commits.Progress()
		p.Disk = maps.Clone(r.disks)
	}
	return p
}

// StepDown says that a later epoch begins, which this member does not lead now.
func (r *Replicator) StepDown() {
	if r.commits != nil {
		r.fenced.Add(r.log.End.Position - min(r.others, r.log.End.Position))
	}
	r.commits, r.until = nil, 0
}

// Follow says with which records a recovering follower is complete.
func (r *Replicator) Follow(until uint64) { r.until = until }

// Configure changes which members count.
func (r *Replicator) Configure(c *group.Config) {
	if r.commits != nil {
		r.commits.Configure(c)
	}
}

// Linked says that a follower begins with nothing.
func (r *Replicator) Linked(member uint32) {
	if r.commits != nil {
		r.commits.Safe(member, 0)
	}
}

// Round says how far this member has written its log and made it durable: positions. It returns the
// committed position. The worker calls it once a round, before Links.Poll.
func (r *Replicator) Round(written, durable uint64) uint64 {
	r.safe = protocol.Have{Received: r.log.End.Position, Written: written, Durable: durable}
	if r.commits == nil {
		r.links.Safe(written, durable)
		r.log.Committed = max(r.log.Committed, min(r.links.Committed(), r.log.End.Position))
	} else {
		r.links.Progress(r.progress)
		r.log.Committed = r.commits.Safe(r.self, r.position(&r.safe))
		r.disks[r.self] = r.onDisk(&r.safe)
		r.links.Commit(r.log.Committed)
	}
	r.recover()
	// Others may have committed records that this member's disk may lose. A reader of its log does not get those: after a
	// crash there would be fewer than it has read.
	r.shows = max(r.shows, min(r.log.Committed, r.onDisk(&r.safe)))
	r.show()
	return r.log.Committed
}

// onDisk returns the position up to which a crash of a member takes no record from its disk.
func (r *Replicator) onDisk(h *protocol.Have) uint64 {
	return positionAt(max(r.links.config.Level, protocol.Written), h)
}

// progress notes what a follower has said.
func (r *Replicator) progress(member uint32, h protocol.Have) {
	r.others = max(r.others, h.Received)
	r.commits.Safe(member, r.position(&h))
	r.disks[member] = r.onDisk(&h)
}

// position returns up to where a member's records are as safe as committed ones must be.
func (r *Replicator) position(h *protocol.Have) uint64 {
	return positionAt(r.links.config.Level, h)
}

// positionAt returns the position up to which records are as safe as a level says.
func positionAt(level protocol.Durability, h *protocol.Have) uint64 {
	switch level {
	case protocol.Received:
		return h.Received
	case protocol.Written:
		return h.Written
	}
	return h.Durable
}

// recover ends recovering once the log has everything that it may lack.
func (r *Replicator) recover() {
	if r.log.Recovering && (r.until > 0 && r.position(&r.safe) >= r.until || r.Open() && r.position(&r.safe) >= r.log.Committed) {
		r.log.Recovering = false
	}
}
