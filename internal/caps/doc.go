// Package caps reads which capabilities a thread has.
//
// The idea: Linux splits what root may do into numbered capabilities, and every
// thread has five sets of them. Effective is what it may do now, permitted what
// it may make effective, inheritable and ambient what programs it starts may
// get, bounding what they can get at most. All are lines of /proc/PID/status
// (fs/proc/array.c); a [Set] is one of them, a [Status] what the file says of one
// thread.
//
// Values are plain data; every function may be called from any goroutine. The
// oldest kernel is 5.9, the first with all of the capabilities named here.
package caps
