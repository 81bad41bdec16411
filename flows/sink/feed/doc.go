// Package feed is the stage of a flow that puts the messages of a feed in order: a sink in front of the flow's own sink.
//
// It copies each message from the packets of all lines to a frame of its own, and passes that on. A packet's frames
// are free again when it has been read. Packets behind a gap are copied, and wait without a frame.
//
// The worker's thread calls all methods except Check, Announce, Observe and the others that pipeline.Sink names.
package feed
