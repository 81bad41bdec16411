package nvme

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Reasons to refuse a block device. The error names what was found and where.
var (
	// ErrDeviceInUse is matched if the device is mounted, used as swap, or part of another device.
	ErrDeviceInUse = errors.New("the device is in use")
	// ErrDeviceNotEmpty is matched if the device has partitions, a file system or similar on it.
	ErrDeviceNotEmpty = errors.New("the device is not empty")
	// ErrDeviceReadOnly is matched if the device does not allow writes.
	ErrDeviceReadOnly = errors.New("the device is read-only")
	// ErrDeviceTooSmall is matched if the device is smaller than required.
	ErrDeviceTooSmall = errors.New("the device is too small")
)

// openDevice opens a block device. A device for writing must be unused and empty, and no other
// process may hold it open. Force overrides all three, Filled the second.
func (t *Target) openDevice(c TargetConfig) error {
	if err := t.claim(c); err != nil {
		return err
	}
	t.direct = true
	var st unix.Stat_t
	if err := unix.Fstat(t.fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK || uint64(st.Rdev) != t.number {
		return fmt.Errorf("the path changed while it was opened: try again")
	}
	if err := t.measure(c); err != nil {
		return err
	}
	if err := t.findAlignment(c.Buffered); err != nil {
		return err
	}
	if err := t.findLimits(); err != nil {
		return err
	}
	if c.Force || c.Filled || c.ReadOnly {
		return nil
	}
	return t.checkEmpty()
}

// claim opens the device exclusively (O_EXCL on a block device: no other process can mount or
// claim it), or without O_EXCL for reading only.
func (t *Target) claim(c TargetConfig) (err error) {
	if c.ReadOnly {
		t.fd, err = openRetry(c.Path, unix.O_RDONLY|unix.O_DIRECT)
		return err
	}
	if !c.Force {
		if err := checkFree(t.number, c.Filled); err != nil {
			return err
		}
	}
	t.fd, err = openRetry(c.Path, unix.O_RDWR|unix.O_DIRECT|unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) && c.Force {
		t.fd, err = openRetry(c.Path, unix.O_RDWR|unix.O_DIRECT)
	}
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: another program has claimed it (stop that, or force)", ErrDeviceInUse)
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES) && readOnlyDevice(t.number):
		return fmt.Errorf("%w (run: blockdev --setrw %s)", ErrDeviceReadOnly, c.Path)
	case errors.Is(err, unix.ENXIO):
		return fmt.Errorf("it has no device: %w", err)
	}
	return err
}

// measure reads the device's size and whether it allows writes.
func (t *Target) measure(c TargetConfig) error {
	size, err := deviceSize(t.fd)
	if err != nil {
		return fmt.Errorf("ask for the size of the device: %w", err)
	}
	t.size.Store(size)
	if size == 0 || size < c.Size {
		return fmt.Errorf("%w: it has %d bytes, %d are needed", ErrDeviceTooSmall, size, max(c.Size, 1))
	}
	if readOnlyDevice(t.number) && !c.ReadOnly {
		return fmt.Errorf("%w (run: blockdev --setrw %s)", ErrDeviceReadOnly, c.Path)
	}
	return nil
}

// readOnlyDevice reads the device's ro attribute
// (Documentation/ABI/stable/sysfs-block).
func readOnlyDevice(number uint64) bool {
	return readLine(filepath.Join(sysDevice(number), "ro")) == "1"
}

// checkEmpty refuses a device with contents.
func (t *Target) checkEmpty() error {
	found, err := signatures(t.path, t.Size())
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%w: it has %s, which writing would destroy (clear it with: wipefs --all %s, or force)",
		ErrDeviceNotEmpty, strings.Join(found, ", "), t.path)
}

// sysDevice returns the directory of a block device in sysfs.
func sysDevice(number uint64) string {
	return fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(number), unix.Minor(number))
}

// checkFree refuses a device that is mounted, used as swap, part of another device or, unless
// filled, partitioned.
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

// usesOf describes the uses of any of the devices.
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

// partitions returns the device's partitions: the directories with an attribute of that name.
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

// mounts returns where one of the devices is mounted, from the mount namespace of the caller:
// proc_pid_mountinfo(5). A file system on several devices shows a number of its own there, so
// mounts compares the source as well.
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

// parseMount splits a line of mountinfo.
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

// swaps returns those of the devices that are used as swap: proc_swaps(5).
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

// numberOf returns the device number of a block device's path, zero for anything else.
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

// readLine returns the content of a small file without its newline. It is empty if the file cannot be read.
func readLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// blkid asks blkid(8), if it is installed, for the contents of a device. Its exit status is 2 if it
// found nothing, 8 if it found contradictory contents, and another one if its version cannot probe.
func blkid(path string) ([]string, error) {
	program := findBlkid()
	if program == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), blkidLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "-p", "-o", "export", path).Output()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return blkidFound(string(out)), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("ask blkid for its contents: no answer within %v: the device may not answer (see dmesg)", blkidLimit)
	case errors.As(err, &exit) && exit.ExitCode() == 8:
		return []string{"signatures of several things"}, nil
	case errors.As(err, &exit) && exit.Exited():
		return nil, nil
	}
	return nil, fmt.Errorf("ask blkid for its contents: %w", err)
}

// blkidLimit fits a slow disk on a busy machine.
const blkidLimit = 30 * time.Second

// findBlkid looks for blkid in the usual places, also if sbin is not in the path.
func findBlkid() string {
	if p, err := exec.LookPath("blkid"); err == nil {
		return p
	}
	for _, p := range []string{"/usr/sbin/blkid", "/sbin/blkid"} {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return ""
}

// blkidFound reads the lines TYPE=… and PTTYPE=…
func blkidFound(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case "TYPE":
			out = append(out, value+" (as blkid calls it)")
		case "PTTYPE":
			out = append(out, "a partition table of type "+value)
		}
	}
	return out
}

// signature is bytes at an offset that identify what is on a device. A negative offset counts from the end.
type signature struct {
	offset int64
	magic  string
	name   string
}

// knownSignatures are checked without blkid(8), which knows many more. They are from the
// specifications of the on-disk formats.
var knownSignatures = []signature{
	{0x438, "\x53\xef", "an ext2, ext3 or ext4 file system"},
	{0, "XFSB", "an XFS file system"},
	{0x10040, "_BHRfS_M", "a Btrfs file system"},
	{0x400, "\x10\x20\xf5\xf2", "an F2FS file system"},
	{3, "NTFS    ", "an NTFS file system"},
	{3, "EXFAT   ", "an exFAT file system"},
	{54, "FAT1", "a FAT file system"},
	{82, "FAT32", "a FAT file system"},
	{0, "hsqs", "a SquashFS file system"},
	{32769, "CD001", "an ISO 9660 file system"},
	{4096 - 10, "SWAPSPACE2", "swap space"},
	{16384 - 10, "SWAPSPACE2", "swap space"},
	{65536 - 10, "SWAPSPACE2", "swap space"},
	{512, "EFI PART", "a GPT partition table"},
	{4096, "EFI PART", "a GPT partition table"},
	{-512, "EFI PART", "a GPT partition table"},
	{-4096, "EFI PART", "a GPT partition table"},
	{510, "\x55\xaa", "an MBR partition table or boot sector"},
	{0, "LABELONE", "an LVM physical volume"},
	{512, "LABELONE", "an LVM physical volume"},
	{1024, "LABELONE", "an LVM physical volume"},
	{1536, "LABELONE", "an LVM physical volume"},
	{0, "LUKS\xba\xbe", "a LUKS volume"},
	{16384, "SKUL\xba\xbe", "a LUKS volume"},
	{0, "\xfc\x4e\x2b\xa9", "a member of an md array"},
	{4096, "\xfc\x4e\x2b\xa9", "a member of an md array"},
}

// signatures returns the signatures on a device of size bytes.
func signatures(path string, size uint64) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("look for its contents: %w", err)
	}
	defer f.Close()
	var found []string
	for _, s := range append(knownSignatures, tailSignatures(size)...) {
		there, err := s.on(f, int64(size))
		if err != nil {
			return nil, fmt.Errorf("look for %s: %w", s.name, err)
		}
		if there && !slices.Contains(found, s.name) {
			found = append(found, s.name)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return blkid(path)
}

// tailSignatures returns the signatures of md's formats 0.90 and 1.0. Their place depends on the
// size: include/uapi/linux/raid/md_p.h.
func tailSignatures(size uint64) []signature {
	const md = "\xfc\x4e\x2b\xa9"
	if size < 128<<10 {
		return nil
	}
	return []signature{
		{int64(size&^0xffff - 0x10000), md, "a member of an md array"},
		{int64((size>>9 - 16) &^ 7 << 9), md, "a member of an md array"},
	}
}

// on reports whether a device of size bytes has the signature.
func (s signature) on(f io.ReaderAt, size int64) (bool, error) {
	off := s.offset
	if off < 0 {
		off += size
	}
	if off < 0 || off+int64(len(s.magic)) > size {
		return false, nil
	}
	b := make([]byte, len(s.magic))
	if _, err := f.ReadAt(b, off); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return bytes.Equal(b, []byte(s.magic)), nil
}
