package protocol

import (
	"errors"
	"log/slog"
)

// Reason says why a message, a peer or a request is refused. It is an error, and a number in
// messages.
type Reason uint8

// These are the numbers in messages. They must not change.
const (
	None         Reason = 0
	BadMagic     Reason = 1
	BadVersion   Reason = 2
	BadKind      Reason = 3
	BadLength    Reason = 4
	BadHeader    Reason = 5
	BadPayload   Reason = 6
	BadSession   Reason = 7
	BadSequence  Reason = 8
	BeyondCredit Reason = 9
	BadReserved  Reason = 10
	OutOfRange   Reason = 11
	Unaligned    Reason = 12
	NotGranted   Reason = 13
	Busy         Reason = 14
	TooLong      Reason = 15
	DiskError    Reason = 16
	Closing      Reason = 17
	NotPermitted Reason = 18
	NotWritten   Reason = 19
	NotLeader    Reason = 20
	StaleEpoch   Reason = 21
	BadName      Reason = 22
	NoSpace      Reason = 23
	Changed      Reason = 24
)

var reasons = [...]struct{ word, sentence string }{
	None:         {"none", "nothing is wrong"},
	BadMagic:     {"bad_magic", "the message does not begin as one of this protocol"},
	BadVersion:   {"bad_version", "the message is of another version of the protocol"},
	BadKind:      {"bad_kind", "the message is of a kind that is not expected here"},
	BadLength:    {"bad_length", "the message is shorter or longer than it says"},
	BadHeader:    {"bad_header", "the header's checksum does not fit it"},
	BadPayload:   {"bad_payload", "the payload's checksum does not fit it"},
	BadSession:   {"bad_session", "the message is of another session"},
	BadSequence:  {"bad_sequence", "the message's sequence does not follow the last one's"},
	BeyondCredit: {"beyond_credit", "the message's sequence is beyond the limit that the receiver has set"},
	BadReserved:  {"bad_reserved", "a field has a value that is reserved"},
	OutOfRange:   {"out_of_range", "a range or value is outside of what the other side can have"},
	Unaligned:    {"unaligned", "the range is not aligned as the served file or device requires"},
	NotGranted:   {"not_granted", "the memory was not granted"},
	Busy:         {"busy", "there is no room for another one now"},
	TooLong:      {"too_long", "it is longer than the other side takes"},
	DiskError:    {"disk_error", "the disk did not do it"},
	Closing:      {"closing", "the other side ends"},
	NotPermitted: {"not_permitted", "this peer may not do that"},
	NotWritten:   {"not_written", "the memory that the immediate names was not written"},
	NotLeader:    {"not_leader", "this member does not lead its group"},
	StaleEpoch:   {"stale_epoch", "the group is in another epoch"},
	BadName:      {"bad_name", "the name is not one of a file in the receiving directory"},
	NoSpace:      {"no_space", "the disk has no room for it"},
	Changed:      {"changed", "the source has changed while it was sent"},
}

// LogReason returns the attribute "reason" of a log entry: the word of the Reason in err. It is
// empty, and slog omits it, if err has no Reason.
func LogReason(err error) slog.Attr {
	if r, is := errors.AsType[Reason](err); is {
		return slog.String("reason", r.String())
	}
	return slog.Attr{}
}

// Reasons returns all reasons except None, in the order of their numbers.
func Reasons() []Reason {
	all := make([]Reason, 0, len(reasons)-1)
	for r := range reasons[1:] {
		all = append(all, Reason(r+1))
	}
	return all
}

// ParseReason returns the reason with a word. ok is false for a word that this program does not know.
func ParseReason(word string) (r Reason, ok bool) {
	for r, one := range reasons {
		if one.word == word {
			return Reason(r), true
		}
	}
	return None, false
}

// String returns a word for metrics, or "unknown" for a number that this program does not know.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r].word
	}
	return "unknown"
}

// Error returns a sentence.
func (r Reason) Error() string {
	if int(r) < len(reasons) {
		return reasons[r].sentence
	}
	return "a reason that this release does not know"
}
