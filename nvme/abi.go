package nvme

// The structures and constants of include/uapi/linux/io_uring.h that this
// package uses. Sizes and offsets are asserted by tests.

// sqe is struct io_uring_sqe. It is always assigned as a whole, so that no field
// of an earlier operation survives.
type sqe struct {
	opcode      uint8
	flags       uint8
	ioprio      uint16
	fd          int32
	off         uint64
	addr        uint64
	len         uint32
	opFlags     uint32 // fsync_flags, cancel_flags, rw_flags
	userData    uint64
	bufIndex    uint16
	personality uint16
	fileIndex   uint32
	addr3       uint64
	pad         uint64
}

// cqe is struct io_uring_cqe.
type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

// ringParams is struct io_uring_params.
type ringParams struct {
	sqEntries    uint32
	cqEntries    uint32
	flags        uint32
	sqThreadCPU  uint32
	sqThreadIdle uint32
	features     uint32
	wqFD         uint32
	_            [3]uint32
	sqOff        sqOffsets
	cqOff        cqOffsets
}

// sqOffsets is struct io_sqring_offsets.
type sqOffsets struct {
	head, tail, ringMask, ringEntries, flags, dropped, array, _ uint32
	userAddr                                                    uint64
}

// cqOffsets is struct io_cqring_offsets.
type cqOffsets struct {
	head, tail, ringMask, ringEntries, overflow, cqes, flags, _ uint32
	userAddr                                                    uint64
}

// iovec is struct iovec on 64-bit machines.
type iovec struct {
	base uint64
	len  uint64
}

// rsrcRegister is struct io_uring_rsrc_register.
type rsrcRegister struct {
	nr    uint32
	flags uint32
	_     uint64
	data  uint64
	tags  uint64
}

// rsrcUpdate is struct io_uring_rsrc_update.
type rsrcUpdate struct {
	offset uint32
	_      uint32
	data   uint64
}

// probeOp is struct io_uring_probe_op.
type probeOp struct {
	op    uint8
	_     uint8
	flags uint16
	_     uint32
}

// probeOps is the most operations a probe asks for.
const probeOps = 256

// opProbe is struct io_uring_probe with room for its operations.
type opProbe struct {
	lastOp uint8
	opsLen uint8
	_      uint16
	_      [3]uint32
	ops    [probeOps]probeOp
}

// getEventsArg is struct io_uring_getevents_arg.
type getEventsArg struct {
	sigmask     uint64
	sigmaskSize uint32
	minWaitUsec uint32
	ts          uint64
}

// timespec is struct __kernel_timespec.
type timespec struct {
	sec  int64
	nsec int64
}

const (
	setupCQSize       = 1 << 3
	setupClamp        = 1 << 4
	setupRDisabled    = 1 << 6
	setupSubmitAll    = 1 << 7
	setupCoopTaskrun  = 1 << 8
	setupTaskrunFlag  = 1 << 9
	setupSQE128       = 1 << 10
	setupCQE32        = 1 << 11
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13
	setupNoMmap       = 1 << 14
	setupNoSQArray    = 1 << 16

	featSingleMmap   = 1 << 0
	featNoDrop       = 1 << 1
	featSubmitStable = 1 << 2
	featExtArg       = 1 << 8

	offSQRing = 0
	offSQEs   = 0x10000000

	sqCQOverflow = 1 << 1
	sqTaskrun    = 1 << 2

	enterGetEvents = 1 << 0
	enterExtArg    = 1 << 3

	opReadv       = 1
	opWritev      = 2
	opFsync       = 3
	opReadFixed   = 4
	opWriteFixed  = 5
	opAsyncCancel = 14
	opRead        = 22
	opWrite       = 23
	opFallocate   = 17
	opURingCmd    = 46
	opReadvFixed  = 60
	opWritevFixed = 61

	opSupported = 1 << 0 // of probeOp.flags

	sqeFixedFile = 1 << 0
	sqeAsync     = 1 << 4

	fsyncDatasync = 1 << 0
	cancelAll     = 1 << 0
	cancelAny     = 1 << 2

	registerBuffers        = 0
	unregisterBuffers      = 1
	registerEventfd        = 4
	registerFilesUpdate    = 6
	registerProbe          = 8
	registerEnableRings    = 12
	registerFiles2         = 13
	registerIOWQMaxWorkers = 19

	rsrcSparse = 1 << 0

	rwfDsync     = 1 << 1 // RWF_DSYNC, of rw_flags
	blockDiscard = 0x1200 // BLOCK_URING_CMD_DISCARD of include/uapi/linux/blkdev.h
)
