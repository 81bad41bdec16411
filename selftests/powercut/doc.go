// Package powercut cuts the power of a disk under captures, logs and NVMe targets, on paper: a guest
// captures, keeps logs of RDMA clients' messages, and serves blocks, on a disk whose emulator records every
// write and flush, and afterwards the disk is rebuilt as any cut could have left it.
//
// A disk may keep in a volatile cache what was written since its last flush, and write
// it out in any order. So what a cut at some place of the record leaves is everything
// in front of the last flush, and of what follows any part: nothing, all, only the
// latest, some sectors of a write. [Log.Cut] draws one such state.
//
// While the guest captures it asks the daemon for its status, and whenever a flow calls
// more packets durable, it writes a [Marker] to a partition of the same disk. In the
// record the marker comes behind the flush that the daemon waited for. A cut behind it
// must therefore leave those packets, whatever becomes of the marker itself. Clients of a
// log that acknowledges what is durable write down what they were told in the same way.
//
// Each state is opened as after a real cut: the kernel replays the journal of the file
// system, the daemon starts and recovers, and the packets are read by a reader nobody
// here wrote. Logs are read and verified before the daemon recovers them and afterwards, and
// some go on with new clients. Of targets for NVMe hosts, which the guest's own kernel writes to, the blocks are read. A check that cannot fail is worth nothing: the tests also cut as a disk
// would that lies about its flushes, and that must be noticed.
//
// Tests are the only callers. Nothing here is shared between goroutines but a Log, which
// does not change.
package powercut
