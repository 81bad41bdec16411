package client

import (
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
)

// Feeder provides the messages of an Appender on the client's thread, without a copy and without
// waking another thread. It is for event-driven programs. The thread calls its methods between
// rounds. They must not block, and must not call the Appender.
type Feeder interface {
	// Next writes the next message into the buffer from which it is sent, and returns its length;
	// false: there is none now. The thread calls it again in its next round, but not while Depth
	// messages are unacknowledged. A thread to which nothing happens sleeps: Appender.Wake begins a round.
	Next(message []byte) (length int, ok bool)
	// Acknowledged says that the flow has acknowledged the messages up to a number.
	Acknowledged(r Receipt)
}

// Wake makes the thread call Feeder.Next soon, though it returned false before. Any goroutine may call it. It costs next to
// nothing while the thread is awake.
func (a *Appender) Wake() { a.client.loop.wake() }

var errFed = errors.New("this appender has its messages from a Feeder: there is nothing to send or to wait for")

// pollFed is poll for an Appender with a Feeder. Acknowledgements come first: they make room for
// messages of the same round.
func (a *Appender) pollFed(now time.Time) (moved bool) {
	err := a.sender.Poll(now)
	moved = a.returnFed()
	if a.readBatch(now) {
		moved = true
		err = errors.Join(err, a.sender.Kick())
	}
	if err != nil {
		a.end(err)
	}
	a.connected()
	return moved
}

// readBatch passes messages of the feeder to the sender. The place of a message follows from its
// number, because messages return in the order in which they were sent.
func (a *Appender) readBatch(now time.Time) (moved bool) {
	for a.fed-a.returned < uint64(a.config.Depth) && a.sender.Room() {
		f := a.places.at(a.frames, a.fed)
		message := a.client.region.At(f.Addr, uint64(a.config.Message))
		length, ok := a.config.Feed.Next(message)
		if !ok {
			return moved
		}
		message = message[:length]
		f.Len = uint32(length)
		a.one[0] = f
		a.fed++
		a.sender.Send(a.one[:], f.Len, protocol.Checksum(message), uint64(now.UnixNano()), a.fed) // succeeds: there is room
		moved = true
	}
	return moved
}

// returnFed passes acknowledgements to the feeder. The device may still need the frames of the
// acknowledged messages.
func (a *Appender) returnFed() (moved bool) {
	moved = a.sender.Done(a.done[:]) > 0
	number, position := a.sender.Acknowledged()
	if number == a.returned {
		return moved
	}
	a.returned = number
	a.config.Feed.Acknowledged(Receipt{Number: number, Position: position})
	return true
}

// connected records whether there is a connection, and wakes the goroutines that wait for one.
func (a *Appender) connected() {
	up := a.sender.Connected()
	if up == a.up { // read without the lock: only this thread writes up
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.up = up
	a.tell()
}
