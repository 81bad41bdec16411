package nvme

import "encoding/binary"

// The structures and constants of include/uapi/linux/nvme_ioctl.h and of the NVM
// Express base and NVM command set specifications that this package uses.

// nvmeCommand is struct nvme_uring_cmd. It is also struct nvme_passthru_cmd, which has a result in
// the last word.
type nvmeCommand struct {
	opcode      uint8
	flags       uint8
	_           uint16
	nsid        uint32
	cdw2, cdw3  uint32
	metadata    uint64
	addr        uint64
	metadataLen uint32
	dataLen     uint32 // bytes; with nvmeVec the number of pieces
	cdw10       uint32
	cdw11       uint32
	cdw12       uint32
	cdw13       uint32
	cdw14       uint32
	cdw15       uint32
	timeout     uint32 // milliseconds; zero: the kernel's default, 30 s
	_           uint32
}

// dsmRange is a range of a dataset management command.
type dsmRange struct {
	attributes uint32
	blocks     uint32
	start      uint64
}

const (
	nvmeIO    = 0xc0484e80 // NVME_URING_CMD_IO
	nvmeVec   = 0xc0484e81 // NVME_URING_CMD_IO_VEC
	nvmeAdmin = 0xc0484e41 // NVME_IOCTL_ADMIN_CMD
	nvmeID    = 0x4e40     // NVME_IOCTL_ID

	cmdFixed = 1 << 0 // IORING_URING_CMD_FIXED

	nvmeFlush       = 0x00
	nvmeWrite       = 0x01
	nvmeRead        = 0x02
	nvmeWriteZeroes = 0x08
	nvmeDataset     = 0x09
	nvmeIdentify    = 0x06 // of the admin set

	nvmeFUA        = 1 << 30 // of cdw12
	nvmeDeallocate = 1 << 2  // of cdw11 of a dataset management command

	// maxCommandBlocks is the largest number of blocks of a read, write or write zeroes command.
	maxCommandBlocks = 1 << 16

	identifySize       = 4096
	identifyNamespace  = 0 // CNS values
	identifyController = 1

	optionalDataset = 1 << 2 // of ONCS
	optionalZeroes  = 1 << 3
)

// namespaceData has the fields of Identify Namespace that are used.
type namespaceData struct {
	blocks   uint64 // NSZE
	shift    uint8  // LBADS of the format in use
	metadata uint16 // MS of it, metadata bytes of each block
}

// parseNamespace reads the identify namespace data, 4096 bytes.
func parseNamespace(b []byte) namespaceData {
	flbas := b[26]
	format := int(flbas&0xf | flbas>>5&3<<4)
	lbaf := binary.LittleEndian.Uint32(b[128+4*format:])
	return namespaceData{blocks: binary.LittleEndian.Uint64(b), shift: uint8(lbaf >> 16), metadata: uint16(lbaf)}
}

// controllerData has the fields of Identify Controller that are used.
type controllerData struct {
	mdts     uint8  // log2 of the largest number of pages of a command; zero: no limit
	optional uint16 // ONCS
	cache    bool   // VWC
}

// parseController reads the identify controller data, 4096 bytes.
func parseController(b []byte) controllerData {
	return controllerData{mdts: b[77], optional: binary.LittleEndian.Uint16(b[520:]), cache: b[525]&1 != 0}
}
