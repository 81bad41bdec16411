// Package relay combines messages between clients and peers.
//
// A relay is a pipeline of a message source and a peers sink. It acknowledges each message when
// enough peers have it. If one of its stages is a sum, a Reducer between source and sink adds up
// the messages of all clients.
package relay
