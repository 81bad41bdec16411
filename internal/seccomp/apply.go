package seccomp

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/caps"
)

// environment is the variable that sets the action for a call outside the list.
const environment = "UNIFIEDD_SYSTEM_CALLS"

// trap is the value of environment with which a call outside the list ends the process.
const trap = "trap"

// ErrUnsupported means that this kernel has no system call filter, or that there is no list for
// this processor.
var ErrUnsupported = errors.New("system calls cannot be filtered")

// namespaces are the flags of clone(2) that make namespaces: include/uapi/linux/sched.h.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Apply limits all threads of the process to the list permanently, and sets no_new_privs on them.
func Apply() error {
	here, err := arch.GetInfo("")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if !seccomp.Supported() {
		return fmt.Errorf("%w: the kernel has no seccomp (CONFIG_SECCOMP_FILTER)", ErrUnsupported)
	}
	runtime.LockOSThread() // no_new_privs is of the thread that gives the filter
	defer runtime.UnlockOSThread()
	for _, filter := range filters(here, refusal(os.Getenv(environment))) {
		if err := seccomp.LoadFilter(filter); err != nil {
			return fmt.Errorf("filter system calls: %w", err)
		}
	}
	return verify()
}

// filters are what the kernel gets, in this order. It asks each of them about a call, the last one first, and does the
// strictest of their answers. It logs a refusal if the first filter that gives this answer has the log flag. The C library
// calls clone3 for each thread and falls back to clone, so that refusal is in a filter without the flag.
func filters(here *arch.Info, refuse seccomp.Action) []seccomp.Filter {
	return []seccomp.Filter{
		{NoNewPrivs: true, Flag: seccomp.FilterFlagTSync, Policy: withoutClone3()},
		{NoNewPrivs: true, Flag: seccomp.FilterFlagTSync | seccomp.FilterFlagLog, Policy: policy(here, refuse)},
	}
}

// withoutClone3 makes the kernel answer as one that does not have clone3.
func withoutClone3() seccomp.Policy {
	return seccomp.Policy{
		DefaultAction: seccomp.ActionAllow,
		Syscalls:      []seccomp.SyscallGroup{{Names: []string{"clone3"}, Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS)}},
	}
}

// verify checks every thread. If a thread cannot take the filter, seccomp(2) returns its number,
// which the library takes for success.
func verify() error {
	threads, err := caps.Threads()
	if err != nil {
		return err
	}
	for _, t := range threads {
		if t.Seccomp != 2 || !t.NoNewPrivs {
			return errors.New("filter system calls: a thread did not take the filter")
		}
	}
	return nil
}

// refusal is the kernel's action for a call outside the list.
func refusal(mode string) seccomp.Action {
	if mode == trap {
		return seccomp.ActionTrap
	}
	return seccomp.ActionErrno // with EPERM, which the library adds
}

// policy is the list for one architecture. It has clone3, which withoutClone3 refuses.
func policy(here *arch.Info, refuse seccomp.Action) seccomp.Policy {
	allowed := seccomp.SyscallGroup{Action: seccomp.ActionAllow}
	for _, name := range calls() {
		if _, known := here.SyscallNames[name]; !known {
			continue // of the other architecture
		}
		switch name {
		case "clone":
			allowed.NamesWithCondtions = append(allowed.NamesWithCondtions, with(name, seccomp.BitsNotSet, namespaces))
		case "socket":
			for _, f := range Families {
				allowed.NamesWithCondtions = append(allowed.NamesWithCondtions, with(name, seccomp.Equal, f.Number))
			}
		default:
			allowed.Names = append(allowed.Names, name)
		}
	}
	return seccomp.Policy{DefaultAction: refuse, Syscalls: []seccomp.SyscallGroup{allowed}}
}

// with returns a rule for a call with a condition on its first argument.
func with(name string, op seccomp.Operation, value uint64) seccomp.NameWithConditions {
	return seccomp.NameWithConditions{Name: name, Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: op, Value: value}}}
}
