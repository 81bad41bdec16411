// Package doctor reports the features that a machine offers the daemon, the features that are
// missing, and the command that remedies each.
//
// A feature exists if it works. So the doctor does not compare kernel versions. It does on a small
// scale what the daemon does: it opens an AF_XDP socket on a loopback interface, loads and attaches
// the XDP program there, opens an io_uring with a small region, and makes an unnamed file in the
// directory of captures. With enough privilege it does so in a new network namespace. [Examine]
// removes everything before it returns.
//
// The doctor only reads the other facts: huge pages, limits, capabilities, interfaces over netlink,
// disks, processors, RDMA devices. Each subject is a file, and each question a small function that
// returns a [Check].
//
// With a configuration, the checks compare with its needs, and a fault that would keep the daemon
// from starting fails. Without one they compare with the defaults, and most missing features are a
// warning.
//
// Threads: any goroutine may call Examine. The oldest kernel is 6.1; on an older one the report
// says so.
package doctor
