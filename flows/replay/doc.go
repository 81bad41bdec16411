// Package replay is the flow that sends captures through an interface.
//
//	reader: disk → extents → packets    sender: pacer → AF_XDP Send
//
// A packet is sent from the extent into which the disk read it. Two cases copy:
// packets whose parts the device does not gather, and compressed files.
package replay
