package labenv

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// tablePart is a line of a device-mapper table, in sectors.
type tablePart struct {
	from, size uint64
	kind, args string
}

// specSize is the size of struct dm_target_spec.
const specSize = 40

// mapper makes a device-mapper request for a device (include/uapi/linux/dm-ioctl.h) and returns the
// kernel's answer.
func mapper(request uintptr, name string, flags uint32, parts []tablePart) (unix.DmIoctl, error) {
	c := unix.DmIoctl{Version: [3]uint32{unix.DM_VERSION_MAJOR}, Flags: flags, Target_count: uint32(len(parts))}
	copy(c.Name[:len(c.Name)-1], name)
	table := encodeTable(parts)
	c.Data_start = uint32(binary.Size(c))
	c.Data_size = c.Data_start + uint32(len(table))
	b, err := binary.Append(nil, binary.NativeEndian, c)
	if err != nil {
		return c, err
	}
	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return c, err
	}
	defer control.Close()
	b = append(b, table...)
	if err := ioctl(control, request, b); err != nil {
		return c, err
	}
	_, err = binary.Decode(b, binary.NativeEndian, &c)
	return c, err
}

// encodeTable encodes the table as the kernel expects it: the arguments of each part follow the
// part.
func encodeTable(parts []tablePart) (out []byte) {
	for _, p := range parts {
		args := make([]byte, (len(p.args)/8+1)*8) // ends with a zero
		copy(args, p.args)
		s := unix.DmTargetSpec{Sector_start: p.from, Length: p.size, Next: uint32(specSize + len(args))}
		copy(s.Target_type[:], p.kind)
		out, _ = binary.Append(out, binary.NativeEndian, s)
		out = append(out, args...)
	}
	return out
}

// createMapped makes a device without a table and returns its minor number.
func createMapped(name string) (minor uint32, err error) {
	c, err := mapper(unix.DM_DEV_CREATE, name, 0, nil)
	if err != nil {
		return 0, fmt.Errorf("make the mapped device %s: %w", name, err)
	}
	return uint32(c.Dev&0xff | c.Dev>>12&0xfff00), nil // huge_encode_dev in include/linux/kdev_t.h
}

func removeMapped(name string) error {
	if _, err := mapper(unix.DM_DEV_REMOVE, name, 0, nil); err != nil {
		return fmt.Errorf("remove the mapped device %s: %w", name, err)
	}
	return nil
}

// loadTable loads a table, which the device uses from its next resume on.
func loadTable(name string, parts []tablePart) error {
	if _, err := mapper(unix.DM_TABLE_LOAD, name, 0, parts); err != nil {
		return fmt.Errorf("load a table of the mapped device %s: %w", name, err)
	}
	return nil
}

// suspendMapped suspends or resumes the device. It does not freeze a file system on the device.
func suspendMapped(name string, suspend bool) error {
	flags := uint32(unix.DM_SKIP_LOCKFS_FLAG)
	if suspend {
		flags |= unix.DM_SUSPEND_FLAG
	}
	if _, err := mapper(unix.DM_DEV_SUSPEND, name, flags, nil); err != nil {
		return fmt.Errorf("suspend or resume the mapped device %s: %w", name, err)
	}
	return nil
}
