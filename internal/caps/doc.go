// Package caps reads which capabilities a thread has.
//
// Linux divides root's rights into numbered capabilities, and every thread has five sets of them.
// The effective set is in force now. The thread may make those of the permitted set effective.
// Programs that it starts may get the inheritable and ambient sets, and at most the bounding set.
// All are lines of /proc/PID/status (fs/proc/array.c); a [Set] is one of them, and a [Status] is
// the file of one thread.
//
// Values are plain data, and any goroutine may call any function. The package needs Linux 5.9, the
// first kernel with all capabilities named here.
package caps
