package umem

// Port is one end of a device as a flow sees it. Four verbs move frames:
//
//	Supply   empty frames go to the device, to be filled
//	Recv     full frames come back from the device
//	Send     full frames go to the device, to be drained
//	Reap     drained frames come back from the device
//
// The verbs return how many frames they took or gave and never block, spin,
// allocate or log. Frames that a verb took belong to the device, those beyond the
// count stay the caller's; frames a verb gave belong to the caller. The slices
// themselves are the caller's throughout and are not kept.
//
// Messages of several frames are chained with More. Send takes whole messages
// only; Recv may give the first part of one and the rest next time.
//
// A frame that failed is given back with Failed set (see Frame.Err), never lost.
//
// A Port belongs to one thread at a time, the thread of its Book.
type Port interface {
	Supply(empty []Frame) int
	Recv(dst []Frame) int
	Send(full []Frame) int
	Reap(dst []Frame) int

	// Kick publishes what Supply and Send queued and wakes the device, with a
	// system call only where the device asked for one. The error says that the
	// device is gone or refuses; frames stay where they are.
	Kick() error

	// FD is a descriptor that polls readable when Recv or Reap may have frames.
	FD() int

	// Limits says what the port can take.
	Limits() Limits

	// Close stops the device and gives every frame it holds to the pool. It may be
	// called again and then does nothing.
	Close() error
}

// Limits are the most that a port takes.
type Limits struct {
	Message uint64 // bytes in one message
	Frames  int    // frames chained in one message
	Supply  int    // frames the device holds to be filled; 0: the port does not receive
	Send    int    // frames the device holds to be drained; 0: the port does not send
}
