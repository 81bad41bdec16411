// Package doctor says what a machine can do for the daemon, what is missing, and
// which command mends it.
//
// The idea: a feature is there if it works. So the doctor does not compare kernel
// versions but does, in small, what the daemon would: it opens an AF_XDP socket on
// a loopback interface, loads and attaches the XDP program there, opens an
// io_uring with a small region, makes a nameless file where captures shall go.
// Where privileges allow, this happens in a network namespace of its own; in any
// case everything is taken back before [Examine] returns.
//
// What is not a matter of trying is read: huge pages, limits, capabilities,
// interfaces over netlink, disks, processors, RDMA devices. Each subject has a file, each
// question a small function which returns a [Check].
//
// Given a configuration, the answers are measured by what it needs, and what
// would keep the daemon from starting fails. Without one the defaults are the
// measure, and most of what is missing is a warning.
//
// Threads: Examine may be called from any goroutine. The oldest kernel is 6.1; an
// older one is examined and told so.
package doctor
