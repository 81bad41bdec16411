package nvme

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// namespace is an NVMe namespace behind a character node (/dev/ngXnY), whose commands bypass the
// kernel's block layer.
type namespace struct {
	id       uint32
	shift    uint8  // log2 of the bytes of a block
	transfer uint64 // most bytes of a command
	optional uint16 // ONCS: the optional commands that the disk supports
	claim    int    // the block device of the same namespace, held exclusively; -1: none
}

// openNode opens a character node. It checks and claims the block device of the same namespace as
// if that were the target, because a node has no owners.
func (t *Target) openNode(c TargetConfig) (err error) {
	if link, err := os.Readlink(fmt.Sprintf("/sys/dev/char/%d:%d/subsystem", unix.Major(t.number), unix.Minor(t.number))); err != nil || filepath.Base(link) != "nvme-generic" {
		return errNoTargetKind
	}
	flags := unix.O_RDWR
	if c.ReadOnly {
		flags = unix.O_RDONLY
	}
	if t.fd, err = openRetry(c.Path, flags); err != nil {
		return err
	}
	t.direct, t.node = true, &namespace{claim: -1}
	if err := t.identify(); err != nil {
		return err
	}
	if size := t.Size(); size == 0 || size < c.Size {
		return fmt.Errorf("%w: it has %d bytes, %d are needed", ErrDeviceTooSmall, size, max(c.Size, 1))
	}
	return t.claimSibling(c)
}

// identify asks the disk for its format and limits. It refuses formats with metadata: each block
// would need another buffer.
func (t *Target) identify() error {
	id, err := unix.IoctlRetInt(t.fd, nvmeID)
	if err != nil {
		return fmt.Errorf("ask for the namespace's number: %w", err)
	}
	var page [identifySize]byte
	if err := adminIdentify(t.fd, uint32(id), identifyNamespace, page[:]); err != nil {
		return fmt.Errorf("identify namespace %d: %w", id, privileged(err))
	}
	ns := parseNamespace(page[:])
	if err := adminIdentify(t.fd, 0, identifyController, page[:]); err != nil {
		return fmt.Errorf("identify the controller: %w", err)
	}
	return t.setFormat(uint32(id), ns, parseController(page[:]))
}

// privileged adds what to do if a command on the node needs more rights. Before Linux 6.2 each
// needs CAP_SYS_ADMIN (nvme_cmd_allowed in drivers/nvme/host/ioctl.c has the rules since).
func privileged(err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (before Linux 6.2 commands by the node take CAP_SYS_ADMIN: use the block device of the namespace)", err)
	}
	return err
}

// setFormat takes over the format that the disk reports. It rejects impossible values.
func (t *Target) setFormat(id uint32, ns namespaceData, ctrl controllerData) error {
	switch {
	case ns.metadata != 0:
		return &NotSupportedError{fmt.Sprintf("a format with %d bytes of metadata for each block", ns.metadata),
			"format the namespace without: nvme format --lbaf"}
	case ns.shift < 9 || ns.shift > 16 || ns.blocks > 1<<62>>ns.shift:
		return fmt.Errorf("the disk claims %d blocks of 1<<%d bytes, which cannot be", ns.blocks, ns.shift)
	}
	n := t.node
	n.id, n.shift, n.optional = id, ns.shift, ctrl.optional
	n.transfer = uint64(maxCommandBlocks) << ns.shift
	if ctrl.mdts > 0 && ctrl.mdts < 20 {
		n.transfer = min(n.transfer, 4096<<ctrl.mdts)
	}
	t.size.Store(ns.blocks << ns.shift)
	t.align = Alignment{Memory: 4, Offset: 1 << ns.shift}
	t.limits = Limits{Logical: 1 << ns.shift, Physical: 1 << ns.shift, Boundary: 1, FUA: true, Cache: ctrl.cache}
	return nil
}

// claimSibling finds the block device of the namespace and takes its limits. If the target is for
// writing, it checks that no other program uses the device.
func (t *Target) claimSibling(c TargetConfig) error {
	name := siblingName(t.path)
	number, err := parseNumber(readLine("/sys/class/block/" + name + "/dev"))
	if err != nil {
		if c.Force || c.ReadOnly {
			return t.limitTransfer()
		}
		return fmt.Errorf("%w: the block device /dev/%s that would say who uses the disk is missing (force writes all the same)", ErrDeviceInUse, name)
	}
	sibling := &Target{path: "/dev/" + name, fd: -1, number: number, block: true}
	sibling.size.Store(t.Size())
	if err := t.takeLimits(queueOf(number)); err != nil || c.ReadOnly {
		return err
	}
	c.Path = sibling.path
	if err := sibling.claim(c); err != nil {
		return err
	}
	t.node.claim = sibling.fd
	if readOnlyDevice(number) { // the node would accept writes all the same, or the disk refuses them
		return fmt.Errorf("%w (run: blockdev --setrw %s)", ErrDeviceReadOnly, sibling.path)
	}
	if c.Force || c.Filled {
		return nil
	}
	return sibling.checkEmpty()
}

// siblingName returns the block device's name for a node's: nvme0n1 for ng0n1.
func siblingName(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return "nvme" + strings.TrimPrefix(filepath.Base(path), "ng")
}

// takeLimits adds the kernel's limits for the disk's queue.
func (t *Target) takeLimits(queue string) error {
	if queue == "" {
		return t.limitTransfer()
	}
	mine := t.limits
	t.limits = readLimits(queue)
	t.limits.Logical, t.limits.FUA, t.limits.Cache = mine.Logical, mine.FUA, mine.Cache
	if mask := readNumber(filepath.Join(queue, "dma_alignment")); mask > 0 && mask < 1<<16 && mask&(mask+1) == 0 {
		t.align.Memory = uint32(mask) + 1
	}
	if err := t.limitTransfer(); err != nil {
		return err
	}
	return refuseZoned(queue)
}

// limitTransfer combines the limits of the disk and the kernel for one command, and finds the
// optional commands that the disk supports.
func (t *Target) limitTransfer() error {
	n, l := t.node, &t.limits
	if l.Transfer > 0 {
		n.transfer = min(n.transfer, l.Transfer)
	}
	n.transfer &^= uint64(t.align.Offset) - 1
	if n.transfer == 0 {
		return errors.New("the disk takes no transfer as large as one of its blocks")
	}
	l.Transfer, l.Zeroes, l.Discard = n.transfer, 0, 0
	if n.optional&optionalZeroes != 0 {
		l.Zeroes = n.transfer
	}
	if n.optional&optionalDataset != 0 {
		l.Discard = l.Logical
	}
	return nil
}

// close closes the block device.
func (n *namespace) close() error {
	if n == nil || n.claim < 0 {
		return nil
	}
	err := unix.Close(n.claim)
	n.claim = -1
	return err
}
