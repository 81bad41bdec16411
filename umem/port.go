package umem

// Port is one end of a device as a flow sees it. Four verbs move frames:
//
//	Supply   empty frames go to the device, to be filled
//	Recv     full frames come back from the device
//	Send     full frames go to the device, to be drained
//	Reap     drained frames come back from the device
//
// The verbs return the number of frames they took or returned. They never block, spin, allocate or
// log. Frames that a verb took belong to the device; those beyond the count stay with the caller.
// Frames that a verb returned belong to the caller. The slices belong to the caller and are not
// kept.
//
// Messages of several frames are chained with More. Send takes whole messages only. Recv may
// return the first part of a message in one call and the rest in the next.
//
// A failed frame is returned with Failed set (see Frame.Err), and is never lost.
//
// A Port belongs to one thread at a time, the thread of its Book.
type Port interface {
	Supply(empty []Frame) int
	Recv(dst []Frame) int
	Send(full []Frame) int
	Reap(dst []Frame) int

	// Kick publishes what Supply and Send queued, and wakes the device, with a system call only if
	// the device asked for one. An error means that the device is gone or refuses; the frames stay
	// where they are.
	Kick() error

	// FD returns a descriptor that polls readable when Recv or Reap may have frames.
	FD() int

	// Limits returns what the port accepts.
	Limits() Limits

	// Close stops the device and gives every frame that it holds to the pool. A second call does nothing.
	Close() error
}

// Limits are the most that a port takes.
type Limits struct {
	Message uint64 // bytes in one message
	Frames  int    // frames chained in one message
	Supply  int    // frames the device holds to be filled; 0: the port does not receive
	Send    int    // frames the device holds to be drained; 0: the port does not send
}
