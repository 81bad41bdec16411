package fabrics

import (
	"bytes"
	"strings"
)

// ConnectDataLen is the length of the data of a Connect in bytes.
const ConnectDataLen = 1024

// AnyController asks for a new controller (CNTLID of the dynamic model).
const AnyController = 0xffff

// AdminQueue is the number of the admin queue.
const AdminQueue = 0

// ConnectCommand has the fields of a Connect command.
type ConnectCommand struct {
	Format    uint16
	Queue     uint16 // 0: the admin queue, and a new controller
	Size      uint32 // entries of the submission queue
	NoFlow    bool   // completions need not contain the submission queue's head
	KeepAlive uint32 // milliseconds; 0: no timeout
}

// ConnectOf decodes a Connect.
func ConnectOf(c *Command) ConnectCommand {
	w := &c.Words
	return ConnectCommand{Format: uint16(w[0]), Queue: uint16(w[0] >> 16), Size: w[1]&0xffff + 1, NoFlow: w[1]>>16&(1<<2) != 0, KeepAlive: w[2]}
}

// ConnectData identifies the host that connects, and the subsystem and controller that it wants.
type ConnectData struct {
	Host       [16]byte // host identifier
	Controller uint16
	Subsystem  string
	HostNQN    string
}

// Identity returns who the host is.
func (d *ConnectData) Identity() HostIdentity { return HostIdentity{d.Host, d.HostNQN} }

// Offsets in the data of a Connect, for InvalidData.
const (
	offHost       = 0
	offController = 16
	offSubsystem  = 256
	offHostNQN    = 512
	nqnRoom       = 256
	// maxNQN is the longest name.
	maxNQN = 223
)

// ConnectDataOf decodes the data of a Connect. If a name is invalid, the status is ConnectInvalid
// and result is the result of its completion.
func ConnectDataOf(b []byte) (d ConnectData, result uint64, s Status) {
	if len(b) != ConnectDataLen {
		return d, 0, InvalidSGLLength | DoNotRetry
	}
	d.Host, d.Controller = [16]byte(b[offHost:]), le.Uint16(b[offController:])
	var ok bool
	if d.Subsystem, ok = nqn(b[offSubsystem:][:nqnRoom]); !ok {
		return d, InvalidData(offSubsystem), ConnectInvalid | DoNotRetry
	}
	if d.HostNQN, ok = nqn(b[offHostNQN:][:nqnRoom]); !ok {
		return d, InvalidData(offHostNQN), ConnectInvalid | DoNotRetry
	}
	return d, 0, Success
}

// nqn returns a copy of a name that ends in a zero byte, and whether it is valid.
func nqn(b []byte) (string, bool) {
	n := bytes.IndexByte(b, 0)
	if n < 0 {
		return "", false
	}
	s := string(b[:n])
	return s, ValidNQN(s)
}

// ValidNQN reports whether a name is valid for a host or subsystem.
func ValidNQN(s string) bool {
	return len(s) > len("nqn.") && len(s) <= maxNQN && strings.HasPrefix(s, "nqn.") && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// InvalidData is the result of a ConnectInvalid about a field of the data, by its offset.
func InvalidData(offset uint16) uint64 { return 1<<16 | uint64(offset) }

// InvalidCommand is the result of a ConnectInvalid about a field of the command, by its offset.
func InvalidCommand(offset uint16) uint64 { return uint64(offset) }

// Offsets in a Connect, for InvalidCommand.
const (
	OffQueue = 42
	OffSize  = 44
)

// InvalidIdentifier, InvalidSubsystem, InvalidHost and InvalidController are results of ConnectInvalid.
var (
	InvalidIdentifier = InvalidData(offHost)
	InvalidSubsystem  = InvalidData(offSubsystem)
	InvalidHost       = InvalidData(offHostNQN)
	InvalidController = InvalidData(offController)
)
