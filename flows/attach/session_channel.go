package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// channelSide is a program's port of a channel.
type channelSide struct {
	number  uint32
	channel *Channel
	reader  *channelReader // nil: it writes
	opening uint64         // of the reader
}

// openChannel opens a port of a channel. A refusal is no error.
func (s *session) openChannel(m *wire.Open) error {
	side, o, files, borrowed, why := s.makeSide(m)
	if why != nil {
		s.program.ended(why.Reason)
		return s.write(why, false)
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	err := errors.Join(s.write(o, false, fds...), closeFiles(borrowed))
	if err == nil {
		s.log.Info("a program has opened a channel", "program", s.program.name, "channel", m.Flow, "role", m.Role.String(), "port", side.number, "next", o.Next)
	}
	return err
}

func closeFiles(all []*os.File) error {
	var errs []error
	for _, f := range all {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// makeSide makes a port of a channel.
func (s *session) makeSide(m *wire.Open) (side *channelSide, o *wire.Opened, files, borrowed []*os.File, why *wire.Refusal) {
	refuse := func(reason wire.Reason, format string, args ...any) (*channelSide, *wire.Opened, []*os.File, []*os.File, *wire.Refusal) {
		return nil, nil, nil, nil, &wire.Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
	}
	c := s.hub.channels[m.Flow]
	if c == nil || m.Role == wire.Write && c.config.Writer != s.program.name {
		return refuse(wire.NoSuchFlow, "there is no channel %q in attach.channels that program %q may %s", m.Flow, s.program.name, m.Role)
	}
	s.program.mu.Lock()
	number, full := s.number()
	s.program.mu.Unlock()
	if full {
		return refuse(wire.OverQuota, "a program has at most %d ports", maxPorts)
	}
	side = &channelSide{number: number, channel: c}
	o = &wire.Opened{Port: number, Entries: c.config.Slots, Size: wire.ChannelLen(c.config.Slots, c.config.Slot), Align: c.config.Slot, Longest: c.config.Slot - wire.SlotHeader}
	var err error
	if m.Role == wire.Write {
		o.Next, files, borrowed, err = c.beginWriter(s)
	} else {
		c.awaitMapped()
		side.reader, files, borrowed, err = c.beginReader(s)
		if err == nil {
			side.opening = side.reader.openings
			o.Next = side.reader.cursor.Cursor()
		}
	}
	switch {
	case errors.Is(err, wire.NoSuchFlow):
		return refuse(wire.NoSuchFlow, "program %q is no reader of channel %q", s.program.name, m.Flow)
	case errors.Is(err, errNoWriter):
		return refuse(wire.Busy, "channel %q has no writer now", m.Flow)
	case errors.Is(err, wire.Busy):
		return refuse(wire.Busy, "program %q has channel %q open", s.program.name, m.Flow)
	case err != nil:
		s.log.Error("no channel for a program", "program", s.program.name, "channel", m.Flow, "err", err)
		return refuse(wire.OverQuota, "%v", err)
	}
	s.program.mu.Lock()
	s.sides[number] = side
	s.program.mu.Unlock()
	return side, o, files, borrowed, nil
}

// mapped handles the word of a writer that it has mapped its ring.
func (s *session) mapped(number uint32) error {
	s.program.mu.Lock()
	side := s.sides[number]
	s.program.mu.Unlock()
	if side == nil || side.reader != nil {
		s.end(&wire.Refusal{Reason: wire.BadMessage, Text: "this port is not that of a channel's writer"})
		return wire.BadMessage
	}
	if err := side.channel.mapped(); err != nil {
		s.end(&wire.Refusal{Reason: wire.BadMessage, Text: err.Error()})
		return err
	}
	return nil
}

// closeSide ends a port of a channel. If why is not nil, the program is told. Readers are told of the writer's end: they
// still read what their memory has.
func (s *session) closeSide(side *channelSide, why *wire.Refusal) error {
	s.program.mu.Lock()
	known := s.sides[side.number] == side
	delete(s.sides, side.number)
	s.program.mu.Unlock()
	if !known {
		return nil
	}
	if why != nil {
		_ = s.write(&wire.Closed{Port: side.number, Refusal: *why}, false) // if it is gone, the session ends
	}
	if side.reader != nil {
		side.channel.endReader(side.reader)
		return nil
	}
	there, err := side.channel.endWriter()
	closeReaders(there, "the writer of channel "+side.channel.config.Name+" has left")
	return err
}

// closeReaders ends the ports of readers.
func closeReaders(all []openReader, text string) {
	for _, r := range all {
		r.close(&wire.Refusal{Reason: wire.Closing, Text: text})
	}
}

// closeWriter ends the port of a channel's writer.
func (s *session) closeWriter(c *Channel, why *wire.Refusal) {
	s.program.mu.Lock()
	var found *channelSide
	for _, side := range s.sides {
		if side.channel == c && side.reader == nil {
			found = side
		}
	}
	s.program.mu.Unlock()
	if found != nil {
		_ = s.closeSide(found, why) // a ring in the region is not given back
	}
}

// close ends the reader's port, unless the reader has done so itself.
func (r openReader) close(why *wire.Refusal) {
	s := r.session
	s.program.mu.Lock()
	var found *channelSide
	for _, side := range s.sides {
		if side.reader == r.reader && side.opening == r.opening {
			found = side
		}
	}
	s.program.mu.Unlock()
	if found != nil {
		_ = s.closeSide(found, why) // a reader's end does not fail
	}
}
