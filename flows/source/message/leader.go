package message

import (
	"encoding/binary"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/protocol"
)

// Lead makes the source number messages from the position after last on, for a group's leader of an
// epoch. It belongs to the worker's thread.
func (s *Source) Lead(last uint64, epoch uint32) { s.acks.restart(last, epoch) }

// StepDown ends all clients: this member does not lead its group any more. Messages that are not
// acknowledged stay so. Those in the batch are in the log. It belongs to the worker's thread.
func (s *Source) StepDown() {
	s.receiver.Restart(protocol.NotLeader)
	for id, o := range s.dedup.origins {
		s.dedup.earlier.Note(id, journal.Mark{Sequence: o.last, Owner: o.owner})
		delete(s.dedup.origins, id)
	}
	clear(s.dedup.recent[:])
	clear(s.dedup.expected)
	s.acks.restart(s.acks.before, 0)
}

// Recorded says that a record of another member is in the log. It belongs to the worker's thread.
func (s *Source) Recorded(header []byte) {
	session := binary.BigEndian.Uint64(header[16:])
	if session == 0 {
		return // a record of the group itself
	}
	s.dedup.earlier.Note(session, journal.Mark{Sequence: binary.BigEndian.Uint64(header[8:]), Owner: binary.BigEndian.Uint64(header[48:])})
}
