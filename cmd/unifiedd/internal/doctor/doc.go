// Package doctor reports what a machine can do for the daemon, what is missing, and which command
// remedies it.
//
// A feature is there if it works. So the doctor does not compare kernel versions. It does on a
// small scale what the daemon does: it opens an AF_XDP socket on a loopback interface, loads and
// attaches the XDP program there, opens an io_uring with a small region, and makes an unnamed file
// in the directory of captures. With enough privilege it does so in a network namespace of its
// own. Everything is removed before [Examine] returns.
//
// The rest is read: huge pages, limits, capabilities, interfaces over netlink, disks, processors,
// RDMA devices. Each subject is a file, and each question a small function that returns a [Check].
//
// With a configuration, the checks compare with what it needs, and what would keep the daemon from
// starting fails. Without one they compare with the defaults, and most of what is missing is a
// warning.
//
// Threads: any goroutine may call Examine. The oldest kernel is 6.1; on an older one the report
// says so.
package doctor
