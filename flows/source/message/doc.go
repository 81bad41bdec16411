// Package message is the source that receives messages of RDMA clients.
//
// It numbers messages and acknowledges them in order, once they have the durability that the flow
// guarantees. It drops messages that a log already has, which a relay or a restarted client sent
// again.
//
// With acknowledge: received the source sends an acknowledgement before the sink gets the message.
// Otherwise it waits until the sink has written the message, made it durable, or delivered it to
// enough peers.
package message
