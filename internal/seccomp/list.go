package seccomp

import "slices"

// groups are the system calls by purpose. They include names that only one of amd64 and arm64 has,
// and the calls of a shell script (capture -z runs one).
var groups = [][]string{
	// Memory: the region, its NUMA nodes, the Go heap.
	{
		"brk", "get_mempolicy", "madvise", "mbind", "membarrier", "memfd_create", "mincore", "mlock", "mlock2", "mlockall", "mmap", "move_pages",
		"mprotect", "mremap", "msync", "munlock", "munlockall", "munmap", "set_mempolicy",
	},
	// Threads and scheduling.
	{
		"arch_prctl", "clone", "futex", "futex_waitv", "get_robust_list", "get_thread_area", "getcpu", "getpriority", "gettid", "ioprio_get", "ioprio_set",
		"prctl", "restart_syscall", "rseq", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr",
		"sched_getparam", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler",
		"sched_yield", "set_robust_list", "set_thread_area", "set_tid_address", "setpriority", "uretprobe",
	},
	// Processes: the index has one of its own, and -z starts a command. clone3 is here for the systemd unit, which would
	// answer EPERM: the C library then makes no thread. withoutClone3 answers ENOSYS.
	{
		"clone3", "execve", "execveat", "exit", "exit_group", "fork", "getpgid", "getpgrp", "getpid", "getppid", "getsid", "kill", "pidfd_open",
		"pidfd_send_signal", "setpgid", "setsid", "tgkill", "tkill", "vfork", "wait4", "waitid",
	},
	// Signals.
	{
		"pause", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",
		"rt_tgsigqueueinfo", "sigaltstack", "signalfd", "signalfd4",
	},
	// Rights and limits. seccomp(2) can only restrict further.
	{
		"capget", "capset", "getegid", "geteuid", "getgid", "getgroups", "getresgid", "getresuid", "getrlimit", "getrusage", "getuid", "prlimit64",
		"seccomp", "setrlimit", "sysinfo", "umask", "uname",
	},
	// Clocks and timers.
	{
		"alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "getitimer", "gettimeofday", "nanosleep", "setitimer", "time", "timer_create",
		"timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime", "times",
	},
	// Descriptors, waiting, random numbers.
	{
		"close", "close_range", "dup", "dup2", "dup3", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait",
		"eventfd", "eventfd2", "fcntl", "flock", "getrandom", "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "ioctl",
		"pipe", "pipe2", "poll", "ppoll", "pselect6", "select",
	},
	// Reading and writing.
	{
		"copy_file_range", "fadvise64", "fallocate", "fdatasync", "fsync", "ftruncate", "lseek", "pread64", "preadv", "preadv2", "pwrite64",
		"pwritev", "pwritev2", "read", "readahead", "readv", "sendfile", "splice", "sync", "sync_file_range", "syncfs", "tee", "truncate",
		"write", "writev",
	},
	// Files by name.
	{
		"access", "chdir", "chmod", "chown", "creat", "faccessat", "faccessat2", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat",
		"fgetxattr", "flistxattr", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "futimesat", "getcwd", "getdents", "getdents64", "getxattr",
		"lchown", "lgetxattr", "link", "linkat", "listxattr", "llistxattr", "lremovexattr", "lsetxattr", "lstat", "mkdir", "mkdirat", "mknod",
		"mknodat", "newfstatat", "open", "openat", "openat2", "readlink", "readlinkat", "removexattr", "rename", "renameat", "renameat2", "rmdir",
		"setxattr", "stat", "statfs", "statx", "symlink", "symlinkat", "unlink", "unlinkat", "utime", "utimensat", "utimes",
	},
	// Sockets: AF_XDP, netlink, TCP and UDP, the control socket.
	{
		"accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recvfrom", "recvmmsg", "recvmsg", "sendmmsg",
		"sendmsg", "sendto", "setsockopt", "shutdown", "socket", "socketpair",
	},
	// Disks and programs in the kernel.
	{"bpf", "io_uring_enter", "io_uring_register", "io_uring_setup"},
}

// calls returns the names of all permitted system calls, sorted.
func calls() []string {
	all := slices.Concat(groups...)
	slices.Sort(all)
	return all
}

// Family is an address family of sockets.
type Family struct {
	Name   string
	Number uint64
}

// Families are the permitted address families of sockets: include/linux/socket.h.
var Families = []Family{{"AF_UNIX", 1}, {"AF_INET", 2}, {"AF_INET6", 10}, {"AF_NETLINK", 16}, {"AF_PACKET", 17}, {"AF_XDP", 44}}
