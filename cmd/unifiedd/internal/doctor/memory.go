package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/umem"
)

func memory(n needs) []Check {
	var checks []Check
	for _, p := range []umem.PageSize{umem.Huge2M, umem.Huge1G} {
		checks = append(checks, hugePages(n, p)...)
	}
	if d := n.Region.Device; d != "" {
		if err := flows.RegionConfig(n.Config).CheckDevice(); err != nil {
			checks = append(checks, fail("region's device", "%v", err))
		} else {
			checks = append(checks, ok("region's device", "%s has room for the region; what is in it stays when the machine loses power only where its memory is persistent", d))
		}
	}
	if n.Region.Pages == config.PagesOrdinary {
		checks = append(checks, warn("region's pages", "ordinary ones: every device translates 512 times as many addresses").
			with("leave region.pages out"))
	}
	return append(checks, lockedMemory(n))
}

// pool has the huge pages of one size, of a NUMA node or of the machine.
type pool struct {
	size        umem.PageSize
	node        int // -1: the machine
	free, total uint64
}

func (p pool) name() string {
	if p.node < 0 {
		return p.size.String()
	}
	return fmt.Sprintf("%v, node %d", p.size, p.node)
}

// file returns the path of the file with the size of the pool:
// Documentation/admin-guide/mm/hugetlbpage.rst.
func (p pool) file() string {
	dir := fmt.Sprintf("hugepages-%dkB/nr_hugepages", p.size.Bytes()>>10)
	if p.node < 0 {
		return "/sys/kernel/mm/hugepages/" + dir
	}
	return fmt.Sprintf("/sys/devices/system/node/node%d/hugepages/%s", p.node, dir)
}

// hugePages checks the machine's pages of one size. If there are several nodes, it also checks each
// node's.
func hugePages(n needs, size umem.PageSize) []Check {
	places := []int{-1}
	if all := numa.Nodes(); len(all) > 1 {
		places = append(places, all...)
	}
	var checks []Check
	for _, node := range places {
		p := pool{size: size, node: node}
		var err error
		if p.free, p.total, err = umem.FreePages(size, node); err != nil {
			if n.pagesFrom(size, node) > 0 {
				checks = append(checks, p.none(n, err))
			}
			continue
		}
		if size == umem.Huge1G && p.total == 0 && n.pagesFrom(size, node) == 0 {
			continue // nobody asks for them
		}
		available, _ := meminfo("MemAvailable")
		checks = append(checks, p.judge(n, available))
	}
	return checks
}

// pagesFrom returns how many pages of a pool the daemon takes.
func (n needs) pagesFrom(size umem.PageSize, node int) uint64 {
	var sum uint64
	for _, p := range flows.RegionConfig(n.Config).Needs() {
		if p.Pages == size && (node < 0 || p.Node == node) {
			sum += p.Count()
		}
	}
	return sum
}

// none is the check of a machine without pages of that size.
func (p pool) none(n needs, err error) Check {
	bad, otherwise := n.badPages()
	return ok(p.name(), "%v%s", err, otherwise).as(bad)
}

// badPages returns how bad it is that huge pages are missing, and what happens then.
func (n needs) badPages() (bad State, otherwise string) {
	if n.Region.Pages == config.PagesAuto {
		return Warn, ": the region is on ordinary pages then, and every device is slower"
	}
	return n.bad(), ""
}

// judge compares a pool with the number of pages that the daemon takes. available is the machine's
// memory, in bytes, from which missing pages could be made.
func (p pool) judge(n needs, available uint64) Check {
	need := n.pagesFrom(p.size, p.node)
	detail := fmt.Sprintf("%d free of %d", p.free, p.total)
	if need == 0 {
		return ok(p.name(), "%s", detail)
	}
	detail += fmt.Sprintf(", %d needed", need)
	if p.free >= need {
		return ok(p.name(), "%s", detail)
	}
	missing := need - p.free
	bad, otherwise := n.badPages()
	if available > 0 && missing*p.size.Bytes() > available {
		return ok(p.name(), "%s, and only %d MiB of memory are available to make more%s", detail, available>>20, otherwise).
			as(bad).with("lower region.size, or free memory and: %s", p.persistent(p.total+missing))
	}
	switch {
	case !n.Region.Reserve:
	case n.starter == "":
		return ok(p.name(), "%s: %d are reserved at the start", detail, missing)
	default:
		detail += fmt.Sprintf(", and user %s, who starts the daemon, may not reserve %d", n.starter, missing)
	}
	return ok(p.name(), "%s%s", detail, otherwise).as(bad).with("%s", p.persistent(p.total+missing))
}

// persistent returns a command that reserves pages now and at each start of the machine.
func (p pool) persistent(pages uint64) string {
	if kib, _ := meminfo("Hugepagesize"); p.node < 0 && kib == p.size.Bytes() {
		return fmt.Sprintf("echo vm.nr_hugepages=%d > /etc/sysctl.d/50-unifiedd.conf && sysctl -p /etc/sysctl.d/50-unifiedd.conf", pages)
	}
	name := fmt.Sprintf("/etc/tmpfiles.d/unifiedd-%dkB", p.size.Bytes()>>10)
	if p.node >= 0 {
		name += fmt.Sprintf("-node%d", p.node)
	}
	return fmt.Sprintf("echo 'w %s - - - - %d' > %s.conf && systemd-tmpfiles --create %[3]s.conf", p.file(), pages, name)
}

// meminfo returns a line of /proc/meminfo, in bytes.
func meminfo(key string) (uint64, bool) {
	for _, line := range lines("/proc/meminfo") {
		var kib uint64
		if _, err := fmt.Sscanf(line, key+": %d kB", &kib); err == nil {
			return kib << 10, true
		}
	}
	return 0, false
}

// lockedMemory compares the limit on locked memory with the amount that devices charge. Each AF_XDP
// registration (xdp_umem_account_pages) and each io_uring one (__io_account_mem) charges the whole
// region to the user, including huge pages, unless the process has CAP_IPC_LOCK. The memory of attached
// programs is part of the region. What they write is locked in addition, since it is on ordinary pages.
func lockedMemory(n needs) Check {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return unknown("locked memory", "%v", err)
	}
	s, err := caps.Self()
	if err != nil {
		return unknown("locked memory", "%v", err)
	}
	return judgeLocked(n, l.Cur, s.Effective)
}

func judgeLocked(n needs, limit uint64, have caps.Set) Check {
	const name = "locked memory"
	programs, locked := programMemory(&n.Attach)
	need := n.registrations()*(uint64(n.Region.Size)+programs) + locked
	told := fmt.Sprintf("limit %s", mebibytes(limit))
	switch {
	case have.Has(caps.IPCLock):
		return ok(name, "%s, which CAP_IPC_LOCK lifts", told)
	case limit >= need:
		return ok(name, "%s, %s needed: AF_XDP and io_uring each charge the whole region", told, mebibytes(need))
	}
	return ok(name, "%s, %s needed: AF_XDP and io_uring each charge the whole region", told, mebibytes(need)).as(n.bad()).
		with("grant CAP_IPC_LOCK, or set LimitMEMLOCK=%dM (ulimit -l %d)", (need+1<<20-1)>>20, (need+1023)>>10)
}

// mebibytes returns a number of bytes as text for people.
func mebibytes(n uint64) string {
	switch {
	case n == unix.RLIM_INFINITY:
		return "unlimited"
	case n < 1<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
