package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/printable"
)

var (
	be         = binary.BigEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Limits of what a peer may say.
const (
	maxName = 1024    // bytes of a name
	maxSize = 1 << 55 // bytes of a source
)

// Limits of a piece, in bytes. Both are powers of two.
const (
	minPiece = leafSize
	maxPiece = 1 << 30
)

// The bits of request.flags.
const (
	wantTimes  = 1 << 0 // the copy gets the source's time of modification
	wantPerms  = 1 << 1 // the copy gets the source's permissions
	isDevice   = 1 << 2 // the source is a block device
	hasHoles   = 1 << 3 // the source has holes
	knownFlags = wantTimes | wantPerms | isDevice | hasHoles
)

// request is what a sender asks for, as the hello of its offer:
//
//	offset  bytes
//	     0    128  hello: role 6, message: longest piece, session, size
//	   128      2  length of the name
//	   130      2  hash of each MiB: 1 BLAKE3 (0: SHA-256, of older releases)
//	   132      4  flags
//	   136      4  permissions
//	   140      4  times of 2^64 nanoseconds to add to the next one (0 in older releases)
//	   144      8  time of modification, nanoseconds since 1970; both are 0 if it is not wanted
//	   152     32  identity of the source: equal as long as the source is the same and does not change
//	   184         name; empty: the receiver's device
type request struct {
	piece    uint32
	session  uint64
	size     uint64
	flags    uint32
	mode     uint32
	modified unix.Timespec
	identity [32]byte
	name     string
}

const requestLen = 184 // without the name

// leavesBLAKE3 is the hash of leaves in a request. Sides with different ones would find out only at the end.
const leavesBLAKE3 = 1

// append appends the bytes of a request.
func (r *request) append(b []byte) ([]byte, error) {
	h := protocol.Hello{Role: protocol.RoleTransfer, Message: r.piece, Session: r.session, Size: r.size}
	n := len(b)
	b, err := h.Append(b)
	if err != nil {
		return b, err
	}
	b = append(b, make([]byte, requestLen-protocol.HelloLen)...)
	f := b[n:]
	be.PutUint16(f[128:], uint16(len(r.name)))
	be.PutUint16(f[130:], leavesBLAKE3)
	be.PutUint32(f[132:], r.flags)
	be.PutUint32(f[136:], r.mode)
	far, near := nanoseconds(r.modified)
	be.PutUint32(f[140:], uint32(far))
	be.PutUint64(f[144:], uint64(near))
	copy(f[152:], r.identity[:])
	return append(b, r.name...), nil
}

// parseRequest parses the hello of a peer's offer. The error wraps the reason.
func parseRequest(b []byte) (r request, err error) {
	h, err := transferHello(b)
	if err != nil {
		return r, err
	}
	if len(b) < requestLen {
		return r, fmt.Errorf("read the request: %w: %d bytes", protocol.BadLength, len(b))
	}
	r = request{piece: h.Message, session: h.Session, size: h.Size, flags: be.Uint32(b[132:]), mode: be.Uint32(b[136:]),
		identity: [32]byte(b[152:184]), name: string(b[requestLen:])}
	var inTime bool
	r.modified, inTime = timespec(int32(be.Uint32(b[140:])), int64(be.Uint64(b[144:])))
	switch leaves := be.Uint16(b[130:]); {
	case leaves != leavesBLAKE3:
		err = fmt.Errorf("%w: the sender has hash %d of each MiB (0 is SHA-256, 1 is BLAKE3) and this receiver %d: use releases on both sides that have the same", protocol.BadVersion, leaves, leavesBLAKE3)
	case int(be.Uint16(b[128:])) != len(r.name) || len(r.name) > maxName:
		err = fmt.Errorf("%w: a name of %d bytes", protocol.BadLength, len(r.name))
	case !inTime:
		err = fmt.Errorf("%w: the time of modification", protocol.OutOfRange)
	case r.flags&^knownFlags != 0 || r.mode&^0o7777 != 0 || h.Next != 0 || h.Window != 0 || !plain(&h):
		err = protocol.BadReserved
	case r.session == 0:
		err = fmt.Errorf("%w: session 0 is none", protocol.BadSession)
	case !isPiece(r.piece):
		err = fmt.Errorf("%w: pieces of %d bytes", protocol.BadLength, r.piece)
	case r.size > maxSize:
		err = fmt.Errorf("%w: %d bytes", protocol.TooLong, r.size)
	}
	if err != nil {
		return request{}, fmt.Errorf("read the request: %w", err)
	}
	return r, nil
}

// nanoseconds returns a time as nanoseconds since 1970: far times of 2^64, and the rest. far is 0 from 1678 to 2262.
func nanoseconds(t unix.Timespec) (far int32, near int64) {
	hi, lo := bits.Mul64(uint64(t.Sec), nanos)
	if t.Sec < 0 {
		hi -= nanos
	}
	lo, carry := bits.Add64(lo, uint64(t.Nsec), 0)
	hi += carry
	return int32(hi + lo>>63), int64(lo)
}

// timespec is the time that nanoseconds returns so. It is false if there is none.
func timespec(far int32, near int64) (t unix.Timespec, is bool) {
	const first = nanos / 2 // 2^63 s, in 2^64 ns
	hi := int64(far) - int64(uint64(near)>>63) + first
	if hi < 0 || hi >= nanos {
		return t, false
	}
	sec, nsec := bits.Div64(uint64(hi), uint64(near), nanos)
	return unix.Timespec{Sec: int64(sec ^ 1<<63), Nsec: int64(nsec)}, true
}

const nanos = 1e9

// transferHello parses the first bytes of a request or an answer.
func transferHello(b []byte) (protocol.Hello, error) {
	h, err := protocol.ParseHello(b[:min(len(b), protocol.HelloLen)])
	if err == nil && h.Role != protocol.RoleTransfer {
		err = fmt.Errorf("%w: files are taken here (role transfer), and the peer wants %v", protocol.NotPermitted, h.Role)
	}
	return h, err
}

// plain reports whether the fields of a hello are 0 that a transfer does not use.
func plain(h *protocol.Hello) bool {
	return h.Flow == "" && h.Durability == 0 && h.Align == 0 && h.Participant == 0
}

func isPiece(n uint32) bool { return n >= minPiece && n <= maxPiece && n&(n-1) == 0 }

// answer is what a receiver answers, as the hello of its answer:
//
//	offset  bytes
//	     0    128  hello: role 6, message: longest piece, window: pieces at once, session, next: first byte to send, size
//	   128      2  length of the state
//	   130      2  0
//	   132         state of the hash of the list at next
type answer struct {
	piece, window uint32
	session, size uint64
	next          uint64
	hashed        []byte
}

const (
	answerLen = 132 // without the state
	maxHashed = 256 // bytes of a state
)

// append appends the bytes of an answer.
func (a *answer) append(b []byte) ([]byte, error) {
	h := protocol.Hello{Role: protocol.RoleTransfer, Message: a.piece, Window: a.window, Session: a.session, Next: a.next, Size: a.size}
	b, err := h.Append(b)
	if err != nil {
		return b, err
	}
	b = be.AppendUint16(b, uint16(len(a.hashed)))
	b = be.AppendUint16(b, 0)
	return append(b, a.hashed...), nil
}

// parseAnswer parses the hello of a receiver's answer to a request.
func parseAnswer(b []byte, to *request) (a answer, err error) {
	h, err := transferHello(b)
	if err != nil {
		return a, err
	}
	if len(b) < answerLen {
		return a, fmt.Errorf("read the answer: %w: %d bytes", protocol.BadLength, len(b))
	}
	a = answer{piece: h.Message, window: h.Window, session: h.Session, size: h.Size, next: h.Next, hashed: b[answerLen:]}
	switch {
	case int(be.Uint16(b[128:])) != len(a.hashed) || len(a.hashed) > maxHashed:
		err = fmt.Errorf("%w: a state of %d bytes", protocol.BadLength, len(a.hashed))
	case be.Uint16(b[130:]) != 0 || !plain(&h):
		err = protocol.BadReserved
	case a.session != to.session || a.size != to.size:
		err = protocol.BadSession
	case !isPiece(a.piece) || a.window == 0 || a.window > maxWindow:
		err = fmt.Errorf("%w: %d pieces of %d bytes", protocol.BadLength, a.window, a.piece)
	case a.next > a.size || a.next != a.size && a.next%leafSize != 0:
		err = fmt.Errorf("%w: to be sent from byte %d on", protocol.BadSequence, a.next)
	}
	if err != nil {
		return answer{}, fmt.Errorf("read the answer: %w", err)
	}
	return a, nil
}

// maxWindow is the largest number of pieces at once.
const maxWindow = 1024

// kind is what a message says.
type kind uint8

const (
	kindPiece    kind = 1 // sender: a piece is in the receiver's memory
	kindHole     kind = 2 // sender: a range has no data
	kindEnd      kind = 3 // sender: everything was sent
	kindAbort    kind = 4 // sender: it ends, for a reason
	kindAlive    kind = 5 // sender: nothing new
	kindGrant    kind = 6 // receiver: memory for a piece
	kindDurable  kind = 7 // receiver: everything up to a byte is durable
	kindComplete kind = 8 // receiver: the copy is complete, durable, and has its name
)

// message is a SEND of messageLen bytes:
//
//	offset  bytes
//	     0      4  uXFR
//	     4      1  version: 1
//	     5      1  kind
//	     6      2  64
//	     8      8  piece, hole: offset; end, complete: bytes of the whole; durable: everything before it is; grant: address
//	    16      8  piece, hole: bytes; grant: bytes
//	    24      4  piece, grant: number of the slot; abort: reason
//	    28      4  piece: CRC-32C of its bytes; grant: rkey
//	    32      4  piece: 1 if a part of it is a hole
//	    24     32  end, complete: hash of the whole
//	    60      4  CRC-32C of bytes 0 to 59
//
// Bytes that a kind does not use are 0.
type message struct {
	kind   kind
	at     uint64
	length uint64
	number uint32 // slot or reason
	value  uint32 // checksum or rkey
	holes  bool
	digest [32]byte
}

const (
	messageLen     = 64
	messageMagic   = "uXFR"
	messageVersion = 1
)

// hashes reports whether messages of a kind have a hash.
func (k kind) hashes() bool { return k == kindEnd || k == kindComplete }

// put writes a message into messageLen bytes.
func (m *message) put(b []byte) {
	clear(b[:messageLen])
	copy(b, messageMagic)
	b[4], b[5] = messageVersion, byte(m.kind)
	be.PutUint16(b[6:], messageLen)
	be.PutUint64(b[8:], m.at)
	be.PutUint64(b[16:], m.length)
	if m.kind.hashes() {
		copy(b[24:], m.digest[:])
	} else {
		be.PutUint32(b[24:], m.number)
		be.PutUint32(b[28:], m.value)
		if m.holes {
			be.PutUint32(b[32:], 1)
		}
	}
	be.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
}

// used has, for each kind, the bytes from 8 to 59 that it uses, one bit for four bytes.
var used = [...]uint16{kindPiece: 0b1111111, kindHole: 0b1111, kindEnd: 0b1111111110011, kindAbort: 0b10000, kindGrant: 0b111111,
	kindDurable: 0b11, kindComplete: 0b1111111110011}

// parseMessage parses a peer's message. The reason is None if it is well-formed. It does not allocate.
func parseMessage(b []byte) (m message, why protocol.Reason) {
	switch {
	case len(b) < 5 || string(b[:4]) != messageMagic:
		return m, protocol.BadMagic
	case b[4] != messageVersion:
		return m, protocol.BadVersion
	case len(b) != messageLen || be.Uint16(b[6:]) != messageLen:
		return m, protocol.BadLength
	case be.Uint32(b[60:]) != crc32.Checksum(b[:60], castagnoli):
		return m, protocol.BadHeader
	}
	m.kind = kind(b[5])
	if m.kind == 0 || int(m.kind) >= len(used) {
		return message{}, protocol.BadKind
	}
	for i := range 13 {
		if used[m.kind]&(1<<i) == 0 && be.Uint32(b[8+4*i:]) != 0 {
			return message{}, protocol.BadReserved
		}
	}
	m.at, m.length = be.Uint64(b[8:]), be.Uint64(b[16:])
	if m.kind.hashes() {
		m.digest = [32]byte(b[24:56])
		return m, protocol.None
	}
	m.number, m.value = be.Uint32(b[24:]), be.Uint32(b[28:])
	if m.kind == kindPiece {
		if h := be.Uint32(b[32:]); h > 1 {
			return message{}, protocol.BadReserved
		} else if h == 1 {
			m.holes = true
		}
	}
	return m, protocol.None
}

// reasonIn returns the reason in an error.
func reasonIn(err error) (protocol.Reason, bool) { return errors.AsType[protocol.Reason](err) }

// sayReason makes the text with which a receiver refuses or ends a sender. It begins with the word of the reason, if the
// error has one.
func sayReason(err error) string {
	if r, is := reasonIn(err); is {
		return r.String() + ": " + err.Error()
	}
	return err.Error()
}

// readReason returns the error in such a text.
func readReason(text string) error {
	printed := printable.Only(text, len(text))
	word, rest, _ := strings.Cut(printed, ": ")
	if r, ok := protocol.ParseReason(word); ok && r != protocol.None {
		return &saidError{r, rest}
	}
	return &saidError{protocol.None, printed}
}

// saidError is what the receiver says.
type saidError struct {
	reason protocol.Reason // None: it gives none
	text   string
}

func (e *saidError) Error() string { return "the receiver says: " + e.text }

// Unwrap returns the reason, or nil.
func (e *saidError) Unwrap() error {
	if e.reason == protocol.None {
		return nil
	}
	return e.reason
}
