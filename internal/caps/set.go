package caps

import (
	"math/bits"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Set is a set of capabilities; bit N stands for capability N of
// linux/capability.h.
type Set uint64

// Capability numbers, as sets of one capability.
const (
	Chown       Set = 1 << unix.CAP_CHOWN
	DACOverride Set = 1 << unix.CAP_DAC_OVERRIDE
	Kill        Set = 1 << unix.CAP_KILL
	Setgid      Set = 1 << unix.CAP_SETGID
	Setuid      Set = 1 << unix.CAP_SETUID
	Setpcap     Set = 1 << unix.CAP_SETPCAP
	NetAdmin    Set = 1 << unix.CAP_NET_ADMIN
	NetRaw      Set = 1 << unix.CAP_NET_RAW
	IPCLock     Set = 1 << unix.CAP_IPC_LOCK
	SysAdmin    Set = 1 << unix.CAP_SYS_ADMIN
	SysResource Set = 1 << unix.CAP_SYS_RESOURCE
	Perfmon     Set = 1 << unix.CAP_PERFMON
	BPF         Set = 1 << unix.CAP_BPF
)

// names by number.
var names = [unix.CAP_LAST_CAP + 1]string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
	"SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
	"IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
	"SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
	"LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
	"WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
}

// Has reports whether all capabilities of o are in s.
func (s Set) Has(o Set) bool { return s&o == o }

// Minus returns the capabilities that are in s and not in o.
func (s Set) Minus(o Set) Set { return s &^ o }

// Numbers lists the capabilities, lowest first.
func (s Set) Numbers() []int {
	var ns []int
	for ; s != 0; s &= s - 1 {
		ns = append(ns, bits.TrailingZeros64(uint64(s)))
	}
	return ns
}

// String names the capabilities, "CAP_NET_RAW, CAP_BPF", or says none.
func (s Set) String() string {
	if s == 0 {
		return "none"
	}
	return strings.Join(s.Names(), ", ")
}

// Names lists the capabilities by name, lowest number first. An unknown one is called CAP_ and its
// number.
func (s Set) Names() []string {
	var all []string
	for _, n := range s.Numbers() {
		name := strconv.Itoa(n)
		if n < len(names) {
			name = names[n]
		}
		all = append(all, "CAP_"+name)
	}
	return all
}
