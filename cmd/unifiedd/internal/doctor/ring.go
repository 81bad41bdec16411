package doctor

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
)

// ring opens an io_uring with a region as the daemon does, and reports the granted features.
func ring(hands *umem.Holder) []Check {
	const name = "io_uring"
	q, err := nvme.Open(nvme.Config{Worker: hands, Name: "doctor", Depth: 8, Pieces: 8, Targets: 1})
	if err != nil {
		return []Check{fail(name, "%v", err).with("%s", ringRemedy(err))}
	}
	checks := append([]Check{ok(name, "a ring opens and takes the region")}, granted(q.Granted())...)
	if err := q.Close(); err != nil {
		checks = append(checks, fail("io_uring close", "%v", err))
	}
	return checks
}

// ringRemedy returns the remedy if no ring opens: Documentation/admin-guide/sysctl/kernel.rst,
// io_uring_disabled.
func ringRemedy(err error) string {
	disabled := readLine("/proc/sys/kernel/io_uring_disabled")
	switch {
	case errors.Is(err, nvme.ErrNotSupported):
		return "run Linux 6.1 or later, and let the container's seccomp profile pass io_uring_setup"
	case errors.Is(err, unix.EPERM) && disabled != "" && disabled != "0":
		return "sysctl kernel.io_uring_disabled=0"
	case errors.Is(err, unix.EPERM):
		return "let the container's seccomp profile pass io_uring_setup, io_uring_enter and io_uring_register"
	}
	return "raise LimitMEMLOCK or grant CAP_IPC_LOCK"
}

// granted returns a check for each feature that newer kernels do better.
func granted(g nvme.Granted) []Check {
	checks := []Check{
		feature("io_uring chains", g.GatherFixed, "WRITEV_FIXED: writes gather frames from registered memory",
			"no WRITEV_FIXED: pages are pinned again for each write of the slot layout", "6.15"),
		feature("io_uring completions", g.DeferTaskrun, "deferred to when the worker asks for them",
			"not deferred: they interrupt the worker", "6.1"),
	}
	rings, missing := "rings in the region, no index array", []string{}
	if !g.RingsInRegion {
		missing = append(missing, "rings in the region (6.5)")
	}
	if !g.NoIndexArray {
		missing = append(missing, "rings without an index array (6.6)")
	}
	if len(missing) > 0 {
		rings = fmt.Sprintf("without %s; a little slower", strings.Join(missing, " and "))
	}
	return append(checks, ok("io_uring rings", "%s", rings))
}

// feature returns OK with one text, or a warning with another.
func feature(name string, there bool, had, missed, since string) Check {
	if there {
		return ok(name, "%s", had)
	}
	return warn(name, "%s", missed).with("run Linux %s or later", since)
}
