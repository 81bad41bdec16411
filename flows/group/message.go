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
	// KindRequest asks the leader for what only it can do. The receiver ignores it if it does not lead.
	KindRequest
	// KindReply answers a request that is done or refused.
	KindReply
)

// Request is what an operator has asked another member for than the leader.
type Request uint8

const (
	RequestStatus   Request = iota + 1 // how far the members are
	RequestTransfer                    // hand over to Add
	RequestChange                      // make Add a voter, and make Remove leave
)

// Progressed is what the leader knows of a member.
type Progressed struct {
	Member uint32
	Away   bool
	Safe   uint64 // position up to which it has all records as safely as the log promises
}

// MaxRefusal is the greatest length of Message.Refusal in bytes.
const MaxRefusal = 1024

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
	Serial   uint64            // KindReport: of the report, never used twice; KindFollow: of the report that it answers; KindRequest, KindReply: of the request
	Log      Log               // KindReport
	After    uint64            // KindFollow: the receiver keeps its records up to this position
	Known    Known             // KindKnown
	Voter    bool              // KindKnown: the one that asks is a voter
	Needed   bool              // KindKnown: without it the other voters cannot decide that another member takes its place
	Until    uint64            // KindFollow: a recovering receiver is complete when it has the records up to this position
	Request  Request           // KindRequest
	Add      uint32            // KindRequest: a member; 0: none
	Remove   uint32            // KindRequest: a member; 0: none
	Refusal  string            // KindReply: why the leader refuses; empty: it is done
	Members  []Progressed      // KindReply: the answer to RequestStatus
}
