package wire

// Reason says why the daemon refuses a program, or ends its connection or one of its ports. It is an error, and
// a number in messages.
type Reason uint32

// These are the numbers in messages. They must not change.
const (
	None          Reason = 0
	BadVersion    Reason = 1
	BadMessage    Reason = 2
	BadName       Reason = 3
	NotPermitted  Reason = 4
	Busy          Reason = 5
	NoSuchFlow    Reason = 6
	BadDescriptor Reason = 7
	BadGeneration Reason = 8
	BadIndex      Reason = 9
	BadSequence   Reason = 10
	OverQuota     Reason = 11
	TooSlow       Reason = 12
	Closing       Reason = 13
	Gone          Reason = 14
	TooLong       Reason = 15
	NotDone       Reason = 16
	OverLimit     Reason = 17
	Stopped       Reason = 18
	NotKnown      Reason = 19
)

var reasons = [...]struct{ word, sentence string }{
	None:          {"none", "nothing is wrong"},
	BadVersion:    {"bad_version", "the message is of another version of the protocol"},
	BadMessage:    {"bad_message", "the message is not one that is expected here"},
	BadName:       {"bad_name", "no program of that name may attach"},
	NotPermitted:  {"not_permitted", "this user may not attach under that name"},
	Busy:          {"busy", "the name or the flow is in use"},
	NoSuchFlow:    {"no_such_flow", "no running flow of that name is for this program"},
	BadDescriptor: {"bad_descriptor", "a descriptor names memory that the program does not have, or a connection that does not fit"},
	BadGeneration: {"bad_generation", "a descriptor names a frame that has changed hands since"},
	BadIndex:      {"bad_index", "an index of a ring is ahead by more than the ring has"},
	BadSequence:   {"bad_sequence", "a message's sequence does not follow the last one's"},
	OverQuota:     {"over_quota", "the program asks for more than it may have"},
	TooSlow:       {"too_slow", "the program does not take what comes for it"},
	Closing:       {"closing", "the flow or the daemon ends"},
	Gone:          {"gone", "the other side has ended"},
	TooLong:       {"too_long", "the message is longer than the flow takes"},
	NotDone:       {"not_done", "the request was not done"},
	OverLimit:     {"over_limit", "the message breaks a limit of the flow"},
	Stopped:       {"stopped", "the flow is told to let no message leave"},
	NotKnown:      {"not_known", "the port has ended before the receipt: the message may have left, and is not sent again"},
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

// Reasons returns all reasons except None, in the order of their numbers.
func Reasons() []Reason {
	all := make([]Reason, 0, len(reasons)-1)
	for r := range reasons[1:] {
		all = append(all, Reason(r+1))
	}
	return all
}
