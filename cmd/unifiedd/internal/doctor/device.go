package doctor

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/nvme"
)

// device examines a block device.
func (p place) device() []Check {
	t, err := nvme.OpenTarget(nvme.TargetConfig{Path: p.path, ReadOnly: true})
	if err != nil {
		return []Check{fail("device", "%v", err).with("%s", deviceRemedy(err))}
	}
	defer t.Close()
	var st unix.Stat_t
	if err := unix.Fstat(t.FD(), &st); err != nil {
		return []Check{fail("device", "%v", err)}
	}
	checks := []Check{ok("device", "%s%s", mebibytes(t.Size()), blocks(uint64(st.Rdev)))}
	return append(append(checks, p.aligned(t.Alignment())...), p.free())
}

// deviceRemedy returns the remedy for a device that cannot even be read. Device groups answer
// EPERM, permissions EACCES.
func deviceRemedy(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return "have the container's manager allow the device (--device, DeviceAllow=)"
	case errors.Is(err, unix.EACCES):
		return "add the user the daemon runs as to the device's group, or run as root"
	}
	return ""
}

// free claims the device for writing, as the daemon would, and releases it at once.
func (p place) free() Check {
	const name = "contents"
	t, err := nvme.OpenTarget(nvme.TargetConfig{Path: p.path})
	forced := p.hasFlow && p.flow.To.Force
	switch {
	case err == nil:
		t.Close()
		return ok(name, "empty and unused")
	case forced && (errors.Is(err, nvme.ErrDeviceNotEmpty) || errors.Is(err, nvme.ErrDeviceInUse)):
		return warn(name, "%v; flow %s overwrites it all the same", err, p.flow.Name)
	}
	return fail(name, "%v", err)
}

// blocks describes a device's blocks: Documentation/ABI/stable/sysfs-block. It is empty for a
// device that is no disk.
func blocks(number uint64) string {
	dir := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(number), unix.Minor(number))
	if exists(dir, "partition") {
		dir = filepath.Join(dir, "..") // of the resolved link: the whole disk
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return ""
	}
	logical, there := readNumber(dir + "/queue/logical_block_size")
	if !there {
		return ""
	}
	physical, _ := readNumber(dir + "/queue/physical_block_size")
	return fmt.Sprintf("; %s: blocks of %d bytes, %d inside", filepath.Base(dir), logical, physical)
}

// mount is a line of /proc/self/mountinfo.
type mount struct {
	device              uint64
	point, kind, source string
	readOnly            bool
}

// mountOf finds the mount of a directory: the longest mount point above it, and of several the last
// to be mounted.
func mountOf(dir string) (mount, bool) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return mount{}, false
	}
	var best mount
	for _, line := range lines("/proc/self/mountinfo") {
		if m, good := parseMount(line); good && under(dir, m.point) && len(m.point) >= len(best.point) {
			best = m
		}
	}
	return best, best.point != ""
}

// under reports whether a directory is at or below a mount point.
func under(dir, point string) bool {
	return point == "/" || dir == point || strings.HasPrefix(dir, point+"/")
}

// parseMount splits a line of mountinfo: proc_pid_mountinfo(5).
func parseMount(line string) (m mount, good bool) {
	before, after, found := strings.Cut(line, " - ")
	fields, rest := strings.Fields(before), strings.Fields(after)
	if !found || len(fields) < 6 || len(rest) < 3 {
		return m, false
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(fields[2], "%d:%d", &major, &minor); err != nil {
		return m, false
	}
	m = mount{device: unix.Mkdev(major, minor), point: unescape(fields[4]), kind: rest[0], source: unescape(rest[1])}
	m.readOnly = hasOption(fields[5], "ro") || hasOption(rest[2], "ro")
	return m, true
}

func hasOption(list, option string) bool {
	return strings.Contains(","+list+",", ","+option+",")
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
