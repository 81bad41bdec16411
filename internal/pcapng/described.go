package pcapng

import "strings"

// Interface returns the head's description of the interface with this index, which must exist.
func (h *Head) Interface(index int) Interface {
	block := h.Interfaces[index]
	f := Interface{LinkType: le.Uint16(block[8:]), SnapLen: le.Uint32(block[12:])}
	var comments []string
	_ = checkOptions(block[16:len(block)-4], func(code uint16, value []byte) bool { // known to be well-formed
		switch code {
		case ifName:
			f.Name = string(value)
		case ifDescription:
			f.Description = string(value)
		case ifSpeed:
			f.Speed = le.Uint64(value)
		case ifFilter:
			f.Filter = string(value[1:])
		case optComment:
			comments = append(comments, string(value))
		case ifCardClock: // the comment in front of it is about the clock
			if last := len(comments) - 1; last >= 0 {
				f.CardClock, comments = comments[last], comments[:last]
			}
		}
		return true
	})
	f.Comment = strings.Join(comments, "\n")
	return f
}

// Comment returns the comment of the section; empty if there is none.
func (h *Head) Comment() string {
	var comments []string
	_ = checkOptions(h.Section[24:len(h.Section)-4], func(code uint16, value []byte) bool { // known to be well-formed
		if code == optComment {
			comments = append(comments, string(value))
		}
		return true
	})
	return strings.Join(comments, "\n")
}

// OwnClock reports whether the times of the packets of the interface with this index, which must exist, are
// from a card's own clock.
func (h *Head) OwnClock(index int) (own bool) {
	block := h.Interfaces[index]
	_ = checkOptions(block[16:len(block)-4], func(code uint16, _ []byte) bool { // known to be well-formed
		own = own || code == ifCardClock
		return true
	})
	return own
}
