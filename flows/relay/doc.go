// Package relay combines messages on their way from clients to peers.
//
// A relay is a pipeline of a message source and a peers sink: each message is
// acknowledged when enough peers have it. With a sum among its stages a Reducer
// adds up the messages of all clients in between.
package relay
