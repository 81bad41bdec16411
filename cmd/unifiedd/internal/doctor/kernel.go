package doctor

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// oldest is the oldest kernel on which the daemon is tested.
var oldest = [2]int{6, 1}

func kernel() []Check {
	checks := []Check{release()}
	checks = append(checks, aside(packets)...)
	checks = append(checks, onRegion(ring)...)
	return append(checks, btf(), jit())
}

func release() Check {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return unknown("release", "%v", err)
	}
	return judgeRelease(unix.ByteSliceToString(u.Release[:]))
}

func judgeRelease(text string) Check {
	var major, minor int
	if _, err := fmt.Sscanf(text, "%d.%d", &major, &minor); err != nil {
		return unknown("release", "Linux %q", text)
	}
	if major < oldest[0] || major == oldest[0] && minor < oldest[1] {
		return warn("release", "Linux %s, older than what this program is tried on", text).
			with("run Linux %d.%d or later", oldest[0], oldest[1])
	}
	return ok("release", "Linux %s", text)
}

// onRegion runs f with a small region on ordinary pages, for devices to register.
func onRegion(f func(*umem.Holder) []Check) []Check {
	checks, err := tryRegion(f)
	if err != nil {
		checks = append(checks, fail("small region", "%v", err).with("raise LimitMEMLOCK or grant CAP_IPC_LOCK"))
	}
	return checks
}

// tryRegion does the same as onRegion, and also returns an error of the region itself.
func tryRegion(f func(*umem.Holder) []Check) (checks []Check, err error) {
	r, err := umem.Open(umem.Config{Size: 128 << 10, Pages: umem.Ordinary, Control: umem.Huge2M.Bytes()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	book := r.NewBook("doctor")
	defer func() { err = errors.Join(err, book.Close()) }()
	hands, err := book.NewHolder(umem.OwnerWorker, "doctor")
	if err != nil {
		return nil, err
	}
	defer hands.Close()
	return f(hands), nil
}

// btf checks for the kernel's own types, which BPF tools need.
func btf() Check {
	const file = "/sys/kernel/btf/vmlinux"
	if !exists(file) {
		return warn("BTF", "%s is not there: the daemon does without, tools for looking at it do not", file).
			with("use a kernel with CONFIG_DEBUG_INFO_BTF")
	}
	return ok("BTF", "%s is there", file)
}

// jit reports whether BPF programs run as machine code. Documentation/admin-guide/sysctl/net.rst; a
// kernel that always compiles has no such file.
func jit() Check {
	if readLine("/proc/sys/net/core/bpf_jit_enable") == "0" {
		return warn("BPF compiler", "off: the XDP program is interpreted, several times slower").
			with("sysctl net.core.bpf_jit_enable=1")
	}
	return ok("BPF compiler", "on")
}
