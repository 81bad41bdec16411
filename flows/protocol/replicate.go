package protocol

// Commit is what a group's leader tells a follower, over the link of its epoch:
//
//	offset  bytes
//	     0      4  "uCMT"
//	     4      1  version
//	     5      1  kind: 6
//	     6      2  length of the header: 64
//	     8      8  epoch
//	    16      8  position up to which, with it, records are committed
//	    24      8  count: of the leader's commit messages over this link, this one included
//	    32     28  0
//	    60      4  CRC-32C of bytes 0 to 59
type Commit struct{ Epoch, Committed, Count uint64 }

const commitFree = 32

// PutCommit writes a message into the first HeaderLen bytes of dst. dst must be long enough.
func PutCommit(dst []byte, c *Commit) {
	begin(dst, KindCommit)
	be.PutUint64(dst[8:], c.Epoch)
	be.PutUint64(dst[16:], c.Committed)
	be.PutUint64(dst[24:], c.Count)
	seal(dst)
}

// ParseCommit parses a whole message.
func ParseCommit(message []byte) (Commit, Reason) {
	if r := alone(message, KindCommit, commitFree); r != None {
		return Commit{}, r
	}
	return Commit{Epoch: be.Uint64(message[8:]), Committed: be.Uint64(message[16:]), Count: be.Uint64(message[24:])}, None
}

// Have is what a follower tells its leader, over the link of the leader's epoch:
//
//	offset  bytes
//	     0      4  "uHAV"
//	     4      1  version
//	     5      1  kind: 7
//	     6      2  length of the header: 64
//	     8      8  epoch
//	    16      8  position up to which, with it, the follower has received records
//	    24      8  and has written them
//	    32      8  and has made them durable
//	    40      8  limit: how many messages the leader may send over this link, from its beginning
//	    48      4  status: a Reason; when it is not 0 the follower ends the link
//	    52      8  count of the last commit message that the follower has received
//	    60      4  CRC-32C of bytes 0 to 59
type Have struct {
	Epoch, Received, Written, Durable uint64
	Limit                             uint64
	Status                            Reason
	Count                             uint64
}

// PutHave writes a message into the first HeaderLen bytes of dst. dst must be long enough.
func PutHave(dst []byte, h *Have) {
	begin(dst, KindHave)
	for i, v := range [...]uint64{h.Epoch, h.Received, h.Written, h.Durable, h.Limit} {
		be.PutUint64(dst[8+8*i:], v)
	}
	be.PutUint32(dst[48:], uint32(h.Status))
	be.PutUint64(dst[52:], h.Count)
	seal(dst)
}

// ParseHave parses a whole message. The caller must check that the numbers match what it sent.
func ParseHave(message []byte) (Have, Reason) {
	if r := alone(message, KindHave, sumAt); r != None {
		return Have{}, r
	}
	h := Have{Epoch: be.Uint64(message[8:]), Received: be.Uint64(message[16:]), Written: be.Uint64(message[24:]), Durable: be.Uint64(message[32:]),
		Limit: be.Uint64(message[40:]), Count: be.Uint64(message[52:])}
	var r Reason
	if h.Status, r = status(be.Uint32(message[48:])); r != None {
		return Have{}, r
	}
	if h.Durable > h.Received || h.Written > h.Received {
		return Have{}, BadSequence
	}
	return h, None
}
