package fabrics

import "encoding/binary"

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

// CompletionOf decodes what Put writes.
func CompletionOf(b []byte) (c Completion, ok bool) {
	if len(b) < CompletionLen {
		return c, false
	}
	return Completion{Result: le.Uint64(b), SQHead: le.Uint16(b[8:]), ID: le.Uint16(b[12:]), Status: Status(le.Uint16(b[14:]) >> 1)}, true
}
