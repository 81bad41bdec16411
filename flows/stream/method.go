package stream

// Method is how messages get to a receiver.
type Method string

const (
	AnyMethod Method = ""      // as the receiver wants them
	BySend    Method = "send"  // SEND, into receives that the receiver has posted
	ByWrite   Method = "write" // WRITE with immediate, into memory that the receiver grants
)
