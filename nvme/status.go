package nvme

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Status is what an NVMe disk answered to a command that it did not carry out: the
// status code type above eight bits of status code. It is an error.
type Status uint16

// statusBits are those of Status in what the kernel hands on; the rest says that more
// is known or that trying again is useless.
const statusBits = 0x7ff

// statusTexts are what the NVM Express base specification, figures "Status Code",
// calls the ones that reads and writes may meet.
var statusTexts = map[Status]string{
	0x001: "invalid command opcode", 0x002: "invalid field in the command", 0x004: "data transfer error", 0x005: "aborted by a loss of power",
	0x006: "internal error", 0x007: "aborted on request", 0x008: "aborted with its queue", 0x00b: "invalid namespace or format",
	0x013: "invalid address of the data", 0x015: "operation denied", 0x020: "the namespace is write protected", 0x021: "interrupted, try again",
	0x080: "block address out of range", 0x081: "capacity exceeded", 0x082: "the namespace is not ready", 0x083: "reservation conflict",
	0x084: "a format is in progress", 0x180: "conflicting attributes", 0x182: "write to a read-only range",
	0x280: "write fault", 0x281: "unrecovered read error", 0x282: "guard check failed", 0x285: "compare failed", 0x286: "access denied",
	0x287: "deallocated or unwritten block", 0x300: "internal path error", 0x370: "the host gave up on the path", 0x371: "aborted by the host",
}

func (s Status) Error() string {
	if text := statusTexts[s]; text != "" {
		return fmt.Sprintf("the disk answers: %s (NVMe status %#x)", text, uint16(s))
	}
	return fmt.Sprintf("the disk answers with NVMe status %#x", uint16(s))
}

// Is reports whether target is the errno that frames carry for the status.
func (s Status) Is(target error) bool { return target == error(s.errno()) }

// errno is what stands for the status in a frame: what the kernel's own block driver
// makes of it (nvme_error_status in drivers/nvme/host/core.c), but EIO where the medium
// failed: ENODATA is the end of the target here.
func (s Status) errno() unix.Errno {
	switch s {
	case 0x001, 0x002, 0x00b, 0x180:
		return unix.EOPNOTSUPP
	case 0x080, 0x081:
		return unix.ENOSPC
	case 0x020, 0x182:
		return unix.EROFS
	case 0x015, 0x286:
		return unix.EACCES
	case 0x083:
		return unix.EBADE
	case 0x282, 0x285:
		return unix.EILSEQ
	}
	return unix.EIO
}
