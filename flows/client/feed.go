package client

import (
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
)

// Feeder gives an Appender its messages on the client's thread, where they need not be copied and nobody is woken up for them: for
// programs that go by events. Its methods are called between rounds of the thread. They must not block, nor call the Appender.
type Feeder interface {
	// Next writes the next message to where it is sent from, and returns how long it is; false: there is none now. It is asked again in the
	// thread's next round, and not while Depth messages are not acknowledged.
	Next(message []byte) (length int, ok bool)
	// Acknowledged says that the flow has the messages up to a number.
	Acknowledged(r Receipt)
}

var errFed = errors.New("this appender has its messages from a Feeder: there is nothing to send or to wait for")

// pollFed is poll of an Appender with a Feeder: what is acknowledged makes room for what goes out in the same round.
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

// readBatch gives the sender what the feeder has. A message's place follows from its number: messages come back in the order
// in which they went.
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
		a.sender.Send(a.one[:], f.Len, protocol.Checksum(message), uint64(now.UnixNano()), a.fed) // there is room
		moved = true
	}
	return moved
}

// returnFed tells the feeder of messages that the receiver has. The device may be done with their frames later.
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

// connected notes whether there is a connection, and wakes those that wait for it.
func (a *Appender) connected() {
	up := a.sender.Connected()
	if up == a.up { // which nobody else changes
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.up = up
	a.tell()
}
