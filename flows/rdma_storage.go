package flows

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/umem"
)

// rdmaStorage is a log: it takes messages of RDMA clients to segments on a disk, and
// acknowledges each when it is as safe as is configured.
//
//	RDMA Recv → position → record → NVMe Send … Reap → RDMA Supply
//	                                       └─ written, durable → acknowledgement
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type rdmaStorage struct {
	common
	inbox
	writer
	positions
	level
	book        *umem.Book
	acknowledge config.Acknowledge
	once        once
	manifest    *segment.Manifest
	lost        uint64 // records that were not there any more when this run began
}

// poll is one round.
func (l *rdmaStorage) Poll(now time.Time) (more bool) {
	l.settle(now)
	if l.failed.Load() == nil {
		open := l.below(l.frames(l.inbox.away()-l.count)+l.writer.away(), now)
		more = l.receive(open, now)
		if !l.gathers() {
			l.tick(open, now)
		}
		l.positions.acknowledge(l.receiver, l.safe(), now)
	}
	l.supply()
	l.publish()
	l.note(l.receiver.Poll(now))
	l.show()
	l.book.Publish()
	return more
}

// receive takes messages to batches, and reports whether more wait. The disk has no more
// frames than are not needed for clients to send, so that a slow one leaves them receives.
func (l *rdmaStorage) receive(open bool, now time.Time) bool {
	if !l.record(now) || !open {
		return false
	}
	most := min(l.room(), l.manifest.Room(l.before+l.given), l.total-l.window-l.inbox.away())
	if most <= 0 {
		l.stuck = true
		l.stalls.Add(1)
		return false
	}
	first, more := l.take(most)
	l.leaveOut(first, now)
	l.number(l.buf[first:l.count], now)
	if first < l.count && l.acknowledge == config.AcknowledgeReceived {
		l.answer(now)
	}
	return l.record(now) && more
}

// answer tells clients what is received before anything is done about the disk, whose calls take longer than all the rest of a round.
func (l *rdmaStorage) answer(now time.Time) {
	l.positions.acknowledge(l.receiver, l.given, now)
	l.supply() // so that credits go with it
	l.note(l.receiver.Poll(now))
}

// record puts messages into batches. What the disk can not take now is held.
func (l *rdmaStorage) record(now time.Time) bool {
	l.drop(l.put(0, l.buf[:l.count], now))
	return l.count == 0
}

// gathers reports whether what came waits for more, since the disk is at work: messages of many clients are then few writes, and a
// batch that is full goes all the same. Where nobody waits for the disk, a flush is work, too.
func (l *rdmaStorage) gathers() bool {
	if l.disk == nil {
		return false
	}
	return !l.disk.track.idle() || l.acknowledge == config.AcknowledgeReceived && !l.disk.flushed
}

// deadline leaves a batch that gathers to the disk's completion.
func (l *rdmaStorage) Deadline(now time.Time) time.Time {
	if l.gathers() && !l.stuck {
		return now.Add(worker.MaxWait)
	}
	return l.writer.Deadline(now)
}

// safe is how many messages of this run are as safe as acknowledged ones are.
func (l *rdmaStorage) safe() uint64 {
	switch l.acknowledge {
	case config.AcknowledgeReceived:
		return l.given
	case config.AcknowledgeWritten:
		return l.sink.progress().written.Packets
	}
	return l.sink.progress().durable.Packets
}

func (l *rdmaStorage) FDs(dst []unix.PollFd) []unix.PollFd {
	dst = l.writer.FDs(dst)
	if l.closed {
		return dst // messages that wait are no news
	}
	return l.inbox.FDs(dst)
}

func (l *rdmaStorage) check(now time.Time) (waits, ends error) {
	if waits, ends = l.inbox.check(); waits != nil || ends != nil {
		return waits, ends
	}
	return l.look(now), nil
}

// finish has what came written, durable and acknowledged, and then clients told that the
// log ends.
func (l *rdmaStorage) finish(now time.Time, rounds uint64) (bool, error) {
	if !l.quiet(rounds) {
		return false, nil
	}
	if done, err := l.sink.close(now); !done || err != nil {
		return false, err
	}
	if l.answered < l.given || l.skips[0] < l.skips[1] || !l.receiver.Idle() {
		return false, nil
	}
	return l.serving.leave(), nil
}

// halt has clients of a log that failed told at once.
func (l *rdmaStorage) halt() error {
	if l.failed.Load() != nil {
		l.serving.leave()
	}
	return l.inbox.halt()
}

func (l *rdmaStorage) announce() []any {
	return append(l.inbox.announce(), "acknowledge", string(l.acknowledge), "position", l.before+1)
}

// observe reads the counters, those of what is safe first: it came before.
func (l *rdmaStorage) observe(s *FlowStatus) error {
	err := l.writer.observe(s)
	s.Log = &LogStatus{
		Acknowledge: string(l.acknowledge), First: l.before + 1, Written: l.before + s.Written.Packets, Durable: l.before + s.Durable.Packets,
		Acknowledged: l.before + l.shown[1].Load(), Last: l.before + l.shown[0].Load(), Lost: l.lost,
	}
	s.Dropped["duplicate"] = l.once.duplicates.Load()
	s.Dropped["refused"] = l.once.refused.Load()
	s.Latency = l.spent.Summary()
	l.inbox.observe(s)
	l.level.observe(s)
	return err
}

// abandon counts as lost what came and was not written when the log failed. None of it
// is acknowledged, unless that was promised for what is received.
func (l *rdmaStorage) abandon(s *FlowStatus) {
	s.Dropped["write_failed"] = 0
	if l.failed.Load() != nil {
		s.Dropped["write_failed"] = l.packets.Load() - l.places.packetsWritten() - l.once.duplicates.Load() - l.once.refused.Load()
	}
}
