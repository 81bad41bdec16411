package nvme

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// sysDevice is the directory of a block device in sysfs.
func sysDevice(number uint64) string {
	return fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(number), unix.Minor(number))
}

// checkFree refuses a device that is mounted, swapped to, part of another
// device or, unless it may be filled, cut into partitions.
func checkFree(number uint64, filled bool) error {
	parts, err := partitions(number)
	if err != nil {
		return err
	}
	all := append([]uint64{number}, parts...)
	uses, err := usesOf(all)
	if err != nil {
		return err
	}
	if len(uses) > 0 {
		return fmt.Errorf("%w: %s (unmount or detach it, or force)", ErrDeviceInUse, strings.Join(uses, ", "))
	}
	if len(parts) > 0 && !filled {
		return fmt.Errorf("%w: it has %d partitions (remove them, or force)", ErrDeviceNotEmpty, len(parts))
	}
	return nil
}

// usesOf describes who uses any of the devices.
func usesOf(numbers []uint64) ([]string, error) {
	uses, err := mounts(numbers)
	if err != nil {
		return nil, err
	}
	swaps, err := swaps(numbers)
	if err != nil {
		return nil, err
	}
	uses = append(uses, swaps...)
	for _, n := range numbers {
		holders, err := os.ReadDir(filepath.Join(sysDevice(n), "holders"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("look for devices made of it: %w", err)
		}
		for _, h := range holders {
			uses = append(uses, "part of /dev/"+h.Name())
		}
	}
	return uses, nil
}

// partitions are the device's partitions: directories with an attribute of that
// name.
func partitions(number uint64) ([]uint64, error) {
	files, err := filepath.Glob(filepath.Join(sysDevice(number), "*/partition"))
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, f := range files {
		n, err := parseNumber(readLine(filepath.Join(filepath.Dir(f), "dev")))
		if err != nil {
			return nil, fmt.Errorf("look for partitions: %w", err)
		}
		out = append(out, n)
	}
	return out, nil
}

// mounts are the places where one of the devices is mounted, from the caller's
// mount namespace: proc_pid_mountinfo(5). A file system over several devices
// shows a number of its own there, so the source is looked at too.
func mounts(numbers []uint64) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("look for mounts: %w", err)
	}
	defer f.Close()
	var out []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		number, place, source, ok := parseMount(lines.Text())
		if ok && (slices.Contains(numbers, number) || strings.HasPrefix(source, "/") && slices.Contains(numbers, numberOf(source))) {
			out = append(out, "mounted on "+place)
		}
	}
	return out, lines.Err()
}

// parseMount takes a line of mountinfo apart.
func parseMount(line string) (number uint64, place, source string, ok bool) {
	before, after, found := strings.Cut(line, " - ")
	fields, rest := strings.Fields(before), strings.Fields(after)
	if !found || len(fields) < 5 || len(rest) < 2 {
		return 0, "", "", false
	}
	number, err := parseNumber(fields[2])
	return number, unescape(fields[4]), unescape(rest[1]), err == nil
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// swaps are the devices of these that are swapped to: proc_swaps(5).
func swaps(numbers []uint64) ([]string, error) {
	text, err := os.ReadFile("/proc/swaps")
	if errors.Is(err, os.ErrNotExist) { // a kernel without swap
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for swap space: %w", err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 0 && strings.HasPrefix(fields[0], "/") && slices.Contains(numbers, numberOf(unescape(fields[0]))) {
			out = append(out, "swap space")
		}
	}
	return out, nil
}

// numberOf is the device number of a block device's path, zero for anything
// else.
func numberOf(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0
	}
	return uint64(st.Rdev)
}

// parseNumber reads "major:minor".
func parseNumber(s string) (uint64, error) {
	var major, minor uint32
	if _, err := fmt.Sscanf(s, "%d:%d", &major, &minor); err != nil {
		return 0, fmt.Errorf("device number %q: %w", s, err)
	}
	return unix.Mkdev(major, minor), nil
}

// readLine is the content of a small file without its newline, empty where it
// cannot be read.
func readLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
