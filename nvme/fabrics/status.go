package fabrics

import "fmt"

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
