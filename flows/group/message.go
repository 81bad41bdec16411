package group

import "github.com/unifiedd/unifiedd/flows/group/election"

// Kind is the kind of a Message.
type Kind uint8

const (
	// KindElection has a message of raft.
	KindElection Kind = iota + 1
	// KindSeal asks for a report.
	KindSeal
	// KindReport describes the sender's log. The sender takes no records of earlier epochs any more, and
	// none of this epoch before it gets a KindFollow.
	KindReport
	// KindFollow says what the receiver must cut off, and from where on it gets records.
	KindFollow
	// KindAsk asks what a member knows of the group and of the sender, which has not voted yet.
	KindAsk
	// KindKnown answers.
	KindKnown
)

// Known is what a member knows of its group.
type Known uint8

const (
	KnowsNothing Known = iota + 1 // it has no state
	KnowsGroup                    // it has one, and no election has taken place
	KnowsEpochs                   // there was one
)

// Message is a message between two members. It may be lost, delayed and repeated.
type Message struct {
	From, To uint32
	Kind     Kind
	Epoch    uint64            // of the leader that sends or gets it; KindElection: 0
	Election *election.Message // KindElection
	End      Place             // KindElection: of the sender's log
	Serial   uint64            // KindReport: of the report, never used twice; KindFollow: of the report that it answers
	Log      Log               // KindReport
	After    uint64            // KindFollow: the receiver keeps its records up to this position
	Known    Known             // KindKnown
	Voter    bool              // KindKnown: the one that asks is a voter
	Until    uint64            // KindFollow: a recovering receiver is complete when it has the records up to this position
}
