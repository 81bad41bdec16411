// Package dispatcher runs a program together with others on one network interface, in the
// dispatcher of libxdp and its tools (xdp-loader, xdp-filter).
//
// The kernel runs one XDP program on an interface. libxdp makes it a dispatcher: a program that
// calls up to ten functions, prog0 to prog9, one after the other. A component program is loaded as
// an extension (BPF_PROG_TYPE_EXT), and a bpf_link replaces a function by it. The return value of
// one program decides whether the next one runs. A read-only map of the dispatcher has the
// programs, their order, and the actions after which the next one runs. Programs and links are
// pinned in a BPF file system, under xdp/dispatch-INTERFACE-ID, so that they outlive the process
// that made them. A process that changes something locks (flock) the parent of that directory. The
// protocol is libxdp's version 2: lib/libxdp/protocol.org of github.com/xdp-project/xdp-tools.
//
// A dispatcher never changes. To add, exchange or remove a program, a process builds and pins a new
// dispatcher. It replaces the old one atomically, and only if the old one is still there.
//
// # Lifetime
//
// [Find] finds the dispatcher of an interface. [Interface.Join] adds a program and returns a
// [Slot], which exchanges it, reports whether it is still there, and removes it. The Slot holds the
// program's link, which is not pinned. So the program stops running when its process ends: the
// dispatcher then calls its own function again. When another process exchanges the dispatcher, the
// program runs by a link of that process, which is pinned as libxdp does, until [Slot.Here] takes
// the link over. If our process has ended before, no process takes it over, and the program keeps
// running. The program of package bpf then passes all packets.
//
// In both cases the pinned program remains. So each program of ours has a mark, a directory
// unifiedd-ID next to those of the dispatchers. It is locked while the process lives. A program
// with an unlocked mark is dead. [Sweep], and the next Join or exchange by this package, remove it
// and its mark.
//
// # Rules
//
// Any goroutine may call the methods, one at a time for each Interface. None is for a hot path:
// each takes a lock that other programs also use, and waits for it up to five seconds.
//
// It needs Linux 5.18, a BPF file system, and CAP_SYS_ADMIN, without which the kernel gives no
// descriptor of another process's program. A user other than root also needs CAP_DAC_OVERRIDE,
// since libxdp's directory belongs to root.
package dispatcher
