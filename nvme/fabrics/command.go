package fabrics

import (
	"encoding/binary"
	"fmt"
)

var le = binary.LittleEndian

// CommandLen and CompletionLen are the lengths of a command and of a completion in bytes, without data.
const (
	CommandLen    = 64
	CompletionLen = 16
)

// Command is a submission queue entry.
type Command struct {
	Opcode    uint8
	Fabrics   uint8 // the type of a Fabrics command (OpFabrics)
	ID        uint16
	Namespace uint32
	Data      Data
	Words     [6]uint32 // CDW10 to CDW15; in Fabrics commands the bytes from 40 on
}

// CommandOf decodes the command in a capsule. The status says why every command of this form is
// refused. ID is valid in any case.
func CommandOf(b []byte) (Command, Status) {
	if len(b) < CommandLen {
		return Command{}, InvalidField | DoNotRetry
	}
	c := Command{Opcode: b[0], ID: le.Uint16(b[2:]), Namespace: le.Uint32(b[4:])}
	for i := range c.Words {
		c.Words[i] = le.Uint32(b[40+4*i:])
	}
	if c.Opcode == OpFabrics {
		c.Fabrics, c.Namespace = b[4], 0
	}
	if flags := b[1]; flags&^sglMask != 0 || c.Opcode != OpFabrics && flags&sglMask != sglMeta {
		return c, InvalidField | DoNotRetry // fused, or PRPs, which Fabrics does not allow
	}
	var s Status
	c.Data, s = dataOf(b[24:40])
	return c, s
}

// The part of a command's flags that describes DPTR: an SGL, with metadata, if any, in one piece.
const (
	sglMask = 0xc0
	sglMeta = 0x40
)

// Completion is a completion queue entry.
type Completion struct {
	Result uint64
	SQHead uint16
	ID     uint16
	Status Status
}

// Put writes the completion to the first CompletionLen bytes of b.
func (c *Completion) Put(b []byte) {
	_ = b[CompletionLen-1]
	le.PutUint64(b, c.Result)
	le.PutUint16(b[8:], c.SQHead)
	le.PutUint16(b[10:], 0) // with RDMA the connection identifies the queue
	le.PutUint16(b[12:], c.ID)
	le.PutUint16(b[14:], uint16(c.Status)<<1)
}

// Opcodes of admin commands, of commands to namespaces, and of both.
const (
	OpGetLogPage  = 0x02
	OpIdentify    = 0x06
	OpAbort       = 0x08
	OpSetFeatures = 0x09
	OpGetFeatures = 0x0a
	OpAsyncEvent  = 0x0c
	OpKeepAlive   = 0x18

	OpFlush       = 0x00
	OpWrite       = 0x01
	OpRead        = 0x02
	OpCompare     = 0x05
	OpWriteZeroes = 0x08
	OpDataset     = 0x09

	OpReservationRegister = 0x0d
	OpReservationReport   = 0x0e
	OpReservationAcquire  = 0x11
	OpReservationRelease  = 0x15

	OpFabrics = 0x7f
)

// Types of Fabrics commands (FCTYPE).
const (
	PropertySet = 0x00
	Connect     = 0x01
	PropertyGet = 0x04
	AuthSend    = 0x05
	AuthReceive = 0x06
	Disconnect  = 0x08
)

// Status is how a command ended: the status code type in bits 8 to 10, the status code in the bits
// below, and DoNotRetry.
type Status uint16

// DoNotRetry says that the command would fail again.
const DoNotRetry Status = 1 << 14

// Codes of the generic type, of commands, of Fabrics and of media.
const (
	Success              Status = 0x000
	InvalidOpcode        Status = 0x001
	InvalidField         Status = 0x002
	DataTransferError    Status = 0x004
	InternalError        Status = 0x006
	AbortedByRequest     Status = 0x007
	InvalidNamespace     Status = 0x00b
	CommandSequence      Status = 0x00c
	InvalidSGLCount      Status = 0x00e
	InvalidSGLLength     Status = 0x00f
	InvalidSGLType       Status = 0x011
	InvalidSGLOffset     Status = 0x016
	OperationDenied      Status = 0x015
	HostIdentifierFormat Status = 0x018
	WriteProtected       Status = 0x020
	LBAOutOfRange        Status = 0x080
	CapacityExceeded     Status = 0x081
	ReservationConflict  Status = 0x083
	InvalidQueueID       Status = 0x101
	AsyncEventLimit      Status = 0x105
	InvalidLogPage       Status = 0x109
	NotSaveable          Status = 0x10d
	NotChangeable        Status = 0x10e
	ConnectFormat        Status = 0x180
	ControllerBusy       Status = 0x181
	ConnectInvalid       Status = 0x182
	ConnectHostRefused   Status = 0x184
	AuthRequired         Status = 0x191
	WriteFault           Status = 0x280
	UnrecoveredRead      Status = 0x281
	CompareFailure       Status = 0x285
	// AsymmetricAccessInaccessible: the namespace cannot be reached through this controller. The host
	// tries another one.
	AsymmetricAccessInaccessible Status = 0x302
	statusMask                   Status = 0x7ff
)

var statusNames = map[Status]string{
	Success: "success", InvalidOpcode: "invalid opcode", InvalidField: "invalid field", DataTransferError: "data transfer error", InternalError: "internal error",
	AbortedByRequest: "aborted", InvalidNamespace: "invalid namespace", CommandSequence: "command sequence error", InvalidSGLCount: "invalid number of SGL descriptors",
	InvalidSGLLength: "invalid data SGL length", InvalidSGLType: "invalid SGL descriptor type", InvalidSGLOffset: "invalid SGL offset", WriteProtected: "namespace is write protected",
	LBAOutOfRange: "LBA out of range", CapacityExceeded: "capacity exceeded", InvalidQueueID: "invalid queue identifier", AsyncEventLimit: "asynchronous event request limit exceeded",
	InvalidLogPage: "invalid log page", NotSaveable: "feature is not saveable", NotChangeable: "feature is not changeable", ConnectFormat: "connect: incompatible format",
	ControllerBusy: "connect: controller busy", ConnectInvalid: "connect: invalid parameters", ConnectHostRefused: "connect: invalid host", AuthRequired: "authentication required", WriteFault: "write fault",
	UnrecoveredRead: "unrecovered read error", CompareFailure: "compare failure", OperationDenied: "operation denied", HostIdentifierFormat: "host identifier inconsistent format",
	ReservationConflict: "reservation conflict", AsymmetricAccessInaccessible: "asymmetric access inaccessible",
}

// String returns the specification's name for it.
func (s Status) String() string {
	if n, ok := statusNames[s&statusMask]; ok {
		return n
	}
	return fmt.Sprintf("status %#x", uint16(s))
}

// Code is the status without DoNotRetry.
func (s Status) Code() Status { return s & statusMask }
