package replica

import (
	"errors"
	"math"

	"github.com/unifiedd/unifiedd/flows/protocol"
)

// errBehind ends the link of a follower that was too slow. It gets what it lacks from the segments.
var errBehind = errors.New("the follower is too far behind")

// feed prepares a link over which this member sends records.
func (l *Links) feed(k *Link) {
	k.needs = k.next
	if k.next < l.held.first {
		k.needs = math.MaxUint64 // nothing that is kept, until it has caught up
		k.copies = newCatchUp(k.next)
		l.catching++
	}
}

// CatchUp returns what a goroutine must call for a link whose records begin in the segments: see
// [CatchUp.Run]. It is nil for a link that does not need it.
func (k *Link) CatchUp() *CatchUp {
	if k.copies == nil {
		return nil
	}
	return &CatchUp{k.copies}
}

// Commit says what is committed. Followers learn it with the next Poll.
func (l *Links) Commit(position uint64) { l.commits = position }

// sendRecords posts records to a follower.
func (l *Links) sendRecords(k *Link) {
	l.finish(k)
	if k.copies != nil && !l.sendCopies(k) {
		return
	}
	for k.next <= l.held.last && l.mayPost(k) {
		one := l.held.at(k.next)
		if !l.post(k, one.frame.Addr, one.frame.Len, k.next, false) { // a commit message soon tells when it is done
			return
		}
	}
}

// mayPost reports whether a record may be posted. Some places of the queue are left to commit
// messages.
func (l *Links) mayPost(k *Link) bool {
	return k.sent < k.limit && k.requests-k.done < sendDepth-controls
}

// post posts a record.
func (l *Links) post(k *Link, addr uint64, length uint32, position uint64, told bool) bool {
	if !k.path.port.SendControl(k.number, addr, length, told) {
		return false
	}
	k.next, k.sent = position+1, k.sent+1
	k.upTo[k.requests%sendDepth] = position
	k.requests++
	l.stats.sent.Add(1)
	l.stats.sentBytes.Add(uint64(length))
	return true
}

// finish notes which requests the device is done with.
func (l *Links) finish(k *Link) {
	done := k.requests - uint64(k.path.port.UnderWay(k.number))
	if done == k.done {
		return
	}
	k.done = done
	safe := k.upTo[(done-1)%sendDepth]
	if k.copies != nil {
		l.reuse(k.copies, safe)
		return
	}
	k.needs = safe + 1
}

// sendCommit tells a follower what is committed, if that is new or nothing was said for the time of a
// heartbeat. No acknowledgement waits for it. So the commits of half a heartbeat share one message, and
// records do not have one each. A follower has room for some of these messages that it has not confirmed.
func (l *Links) sendCommit(k *Link) {
	to, due := min(l.commits, k.next-1), l.config.Heartbeat
	if to != k.said {
		due /= 2
	}
	if l.now.Sub(k.saidAt) < due || k.count-k.have.Count >= controls-2 {
		return
	}
	at := l.place(k)
	protocol.PutCommit(l.region.At(at, protocol.HeaderLen), &protocol.Commit{Epoch: k.epoch, Committed: to, Count: k.count + 1})
	if !k.path.port.SendControl(k.number, at, protocol.HeaderLen, true) {
		return
	}
	k.count++
	k.told++
	k.said, k.saidAt = to, l.now
	k.upTo[k.requests%sendDepth] = k.next - 1
	k.requests++
}

// tellEvery is how many of a follower's messages have one completion. Nothing waits for these, and each
// wakes the worker.
const tellEvery = 4

// place returns the address for the next message without a record.
func (l *Links) place(k *Link) uint64 {
	return l.frames[k.slot].Addr + uint64(k.told%controls)*protocol.HeaderLen
}

// Progress calls f for each follower that has told its progress since the last call.
func (l *Links) Progress(f func(member uint32, h protocol.Have)) {
	for _, k := range l.slots {
		if k != nil && k.news && !k.over {
			k.news = false
			f(k.member, k.have)
		}
	}
}

// Safe says how far this member has written the records that came over the incoming link, and made them
// durable. The leader learns it with the next Poll.
func (l *Links) Safe(written, durable uint64) {
	if k := l.incoming; k != nil {
		k.toSay.Written, k.toSay.Durable = min(written, k.last), min(durable, k.last)
	}
}

// sendHave tells the leader the progress that commits wait for, if there is any, and answers its commit
// messages. Credits alone are told in groups. Other progress goes along.
func (l *Links) sendHave(k *Link) {
	k.toSay.Limit = max(k.hasSaid.Limit, k.taken+uint64(max(0, k.path.posted-controls)))
	credits := k.toSay.Limit - k.hasSaid.Limit
	same := k.toSay.Count == k.hasSaid.Count && positionAt(l.config.Level, &k.toSay) == positionAt(l.config.Level, &k.hasSaid)
	if same && credits < uint64(l.config.Window/4) || k.path.port.UnderWay(k.number) >= controls-2 {
		return
	}
	at := l.place(k)
	protocol.PutHave(l.region.At(at, protocol.HeaderLen), &k.toSay)
	if k.path.port.SendControl(k.number, at, protocol.HeaderLen, k.told%tellEvery == 0) {
		k.told++
		k.hasSaid = k.toSay
	}
}

// Heard returns when something last came from the leader: nanoseconds since 1970. Any goroutine may
// call it.
func (l *Links) Heard() int64 { return int64(l.heard.Load()) }

// Linked reports whether records come over a link. Any goroutine may call it.
func (l *Links) Linked() bool {
	k := l.shown.Load()
	if k == nil {
		return false
	}
	select {
	case <-k.ended:
		return false
	default:
		return true
	}
}

// Committed returns what the leader has said to be committed, of the records that are here. Any
// goroutine may call it.
func (l *Links) Committed() uint64 { return l.committed.Load() }
