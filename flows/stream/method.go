package stream

// Method is how messages get to a receiver.
type Method string

const (
	AnyMethod Method = "any"   // as the receiver wants them; the default
	BySend    Method = "send"  // SEND, into receives that the receiver has posted
	ByWrite   Method = "write" // WRITE with immediate, into memory that the receiver grants
)
