// Package message is the source that receives messages of RDMA clients.
//
// It numbers messages, acknowledges them in order once they are as safe as was
// promised, and leaves out messages that a log has already: those that a relay
// or a restarted client sends again.
//
// With acknowledge: received an acknowledgement is sent before the sink gets the
// message. Otherwise it waits until the sink has written it, made it durable, or
// delivered it to enough peers.
package message
