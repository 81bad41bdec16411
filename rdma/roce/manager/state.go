package manager

// state is that of a connection: IBTA specification, volume 1, 12.9.5 and 12.9.6.
type state uint8

const (
	idle        state = iota
	reqSent           // we ask
	reqWaits          // and the peer says that it takes a while
	repReceived       // the peer accepts, and our queue pair is being led
	reqReceived       // the peer asks
	repSent           // we accept
	repWaits          // and the peer says that it takes a while
	connected         // ESTABLISHED
	dreqSent          // we end it
	timeWait          // it is over
)

// instant is a time of the machine's clock, and a span of it, in nanoseconds.
type instant int64

const never instant = 1<<63 - 1
