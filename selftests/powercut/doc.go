// Package powercut simulates power cuts of a disk under captures, logs and NVMe targets. A guest
// captures, keeps logs of the messages of RDMA clients, and serves blocks, on a disk whose
// emulator records every write and flush. Afterwards the disk is rebuilt in states that a cut
// could have left.
//
// A disk may keep what was written since its last flush in a volatile cache, and write it out in
// any order. So a cut leaves everything before the last flush, and any part of what follows:
// nothing, all, only the latest, some sectors of a write. [Log.Cut] draws one such state.
//
// While the guest captures, it asks the daemon for its status. Whenever a flow reports more
// durable packets, it writes a [Marker] to a partition of the same disk. In the record the marker
// comes after the flush that the daemon waited for. A cut after it must leave those packets,
// whatever happens to the marker itself. Clients of a log that acknowledges durable messages
// record their acknowledgements in the same way.
//
// Each state is opened as after a real cut. The kernel replays the journal of the file system, the
// daemon starts and recovers, and a foreign reader reads the packets. Logs are read and verified
// before and after the daemon's recovery, and some continue with new clients. Of NVMe targets,
// which the guest's own kernel writes to, the blocks are read. A check must be able to fail: the
// tests also cut as a disk that ignores flushes would, and the checks must detect that.
//
// A [Volatile] is a disk in memory whose power is cut while systems run on it. Package group uses it for several
// machines at once.
//
// Only tests call it. Goroutines share nothing but a Log, which does not change.
package powercut
