package doctor

import (
	"fmt"
	"os"
	"strings"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/internal/caps"
)

// must has the capabilities that the daemon cannot work without: those that the parent process
// keeps, except the one to lock memory.
const must = privsep.Needed &^ caps.IPCLock

// useful has the capabilities that only some features need: locking more memory than the limit,
// raising the limit.
const useful = caps.IPCLock | caps.SysResource

func rights() []Check {
	s, err := caps.Self()
	if err != nil {
		return []Check{unknown("capabilities", "%v", err)}
	}
	return append([]Check{capabilities(s.Effective, all()), noNewPrivs(s), seccomp(s)}, confinement()...)
}

// all returns every capability of the kernel.
func all() caps.Set {
	last, known := readNumber("/proc/sys/kernel/cap_last_cap")
	if !known || last < 0 || last > 62 {
		last = 40
	}
	return 1<<(last+1) - 1
}

// capabilities checks the capabilities of the process. CAP_SYS_ADMIN includes CAP_BPF and
// CAP_PERFMON (bpf_capable and perfmon_capable in include/linux/capability.h).
func capabilities(have, all caps.Set) Check {
	missing := must.Minus(have)
	if have.Has(caps.SysAdmin) {
		missing = missing.Minus(caps.BPF | caps.Perfmon)
	}
	detail := name(have, all)
	if lack := (must | useful).Minus(have); lack != 0 {
		detail += "; missing: " + lack.String()
	}
	if missing != 0 {
		return fail("capabilities", "%s", detail).
			with("%s", grant(privsep.Needed))
	}
	return ok("capabilities", "%s", detail)
}

// grant says how to give capabilities.
func grant(s caps.Set) string {
	here := fmt.Sprintf("run as root, or: setcap %s+ep %s", setcap(s), executable())
	if inContainer() == "" {
		return here
	}
	var options []string
	for _, name := range s.Names() {
		options = append(options, "--cap-add "+strings.TrimPrefix(strings.ToUpper(name), "CAP_"))
	}
	return "run the container with " + strings.Join(options, " ") + ", and there: " + here
}

// name returns a set in as few words as possible.
func name(have, all caps.Set) string {
	switch lack := all.Minus(have); {
	case lack == 0:
		return "all"
	case len(lack.Numbers()) < len(have.Numbers()):
		return "all but " + lack.String()
	}
	return have.String()
}

// setcap returns a set in the syntax of setcap(8).
func setcap(s caps.Set) string { return strings.ToLower(strings.Join(s.Names(), ",")) }

func executable() string {
	path, err := os.Executable()
	if err != nil {
		return "unifiedd"
	}
	return path
}

func noNewPrivs(s caps.Status) Check {
	if s.NoNewPrivs {
		return ok("no_new_privs", "set: programs started from here gain nothing, not even by setcap")
	}
	return ok("no_new_privs", "not set")
}

// seccomp reports the filter. The section on the kernel tries the system calls that matter.
func seccomp(s caps.Status) Check {
	if s.Seccomp == 0 {
		return ok("seccomp", "no filter")
	}
	return ok("seccomp", "system calls are filtered; refusals are listed above").
		with("a container needs bpf, io_uring_* and socket(AF_XDP) in its profile")
}

func confinement() []Check {
	return []Check{userNamespace(readLine("/proc/self/uid_map")), container(), unprivilegedBPF()}
}

// userNamespace checks for another user namespace. Its capabilities do not cover BPF, which
// requires those of the first namespace (kernel/bpf/syscall.c), nor the limits of locked memory.
// The first namespace maps every id to itself.
func userNamespace(uidMap string) Check {
	const name = "user namespace"
	var inside, outside, count uint64
	n, _ := fmt.Sscan(uidMap, &inside, &outside, &count)
	switch {
	case n < 3:
		return unknown(name, "/proc/self/uid_map cannot be read")
	case inside == 0 && outside == 0 && count >= 1<<32-1:
		return ok(name, "the machine's own")
	}
	return warn(name, "not the machine's own: capabilities here do not let BPF programs be loaded").
		with("run outside of the container, or in one without user namespaces (--userns=host)")
}

// unprivilegedBPF checks the setting in Documentation/admin-guide/sysctl/kernel.rst.
func unprivilegedBPF() Check {
	const name = "unprivileged BPF"
	switch value := readLine("/proc/sys/kernel/unprivileged_bpf_disabled"); value {
	case "1", "2":
		return ok(name, "off, as it should be: the daemon uses CAP_BPF")
	case "0":
		return warn(name, "every user may load BPF programs, which the daemon does not need").
			with("sysctl kernel.unprivileged_bpf_disabled=2")
	default:
		return unknown(name, "the kernel does not say")
	}
}
