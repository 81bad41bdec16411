package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Version is the version of the protocol.
const Version = 1

const (
	magic     = "uATT"
	headerLen = 8
	// MaxName is the longest name of a program or flow in bytes.
	MaxName = 63
	nameLen = MaxName + 1
	// MaxMessage is the longest message in bytes.
	MaxMessage = headerLen + 8 + maxText // that a port has ended
	maxText    = 500
)

var le = binary.LittleEndian

// Kind is what a message is. Each is one packet on a socket of type SOCK_SEQPACKET:
//
//	offset  bytes
//	     0      4  "uATT"
//	     4      1  version
//	     5      1  kind
//	     6      2  length of the body, which follows
type Kind uint8

// The kinds.
const (
	KindHello   Kind = 1
	KindWelcome Kind = 2
	KindRefusal Kind = 3
	KindOpen    Kind = 4
	KindOpened  Kind = 5
	KindClose   Kind = 6
	KindEnd     Kind = 7
	KindClosed  Kind = 8
	KindMapped  Kind = 9
)

// Hello is the first message of a program:
//
//	 0     64  name, and zeros: at least one
//	64      8  session
//	72      8  0
type Hello struct {
	Name string
	// Session identifies the program's messages over re-attaches and restarts of the daemon: random, never 0.
	Session uint64
}

// Welcome answers a Hello. With it come the descriptors of the memory that the program may read, and of that
// which it may write, as far as there is any:
//
//	 0      8  boot
//	 8      8  in
//	16      8  out
//	24      4  frame
//	28      4  0
type Welcome struct {
	Boot    uint64 // differs between two runs of the daemon
	In, Out uint64 // bytes of memory; 0: there is none, and no descriptor
	Frame   uint32 // bytes of a frame
}

// Refusal ends what was asked for, and the whole connection if it answers a Hello. An End message has the same
// body, and ends the connection; a Closed message has it behind the number of the port that the daemon closed.
//
//	0      4  reason
//	4         text
type Refusal struct {
	Reason Reason
	Text   string
}

func (r *Refusal) Error() string { return r.Reason.String() + ": " + r.Text }

// Unwrap returns the reason.
func (r *Refusal) Unwrap() error { return r.Reason }

// Role is what a port is for.
type Role uint32

// The roles.
const (
	Receive Role = 1 // from the flow to the program
	Send    Role = 2 // from the program to the flow
	Request Role = 3 // requests for blocks and the answers
	Write   Role = 4 // messages of a channel, to its readers
	Follow  Role = 5 // messages of a channel, from its writer
	Look    Role = 6 // the memory of a state, to be read
	Give    Role = 7 // a connection of the program, on which the flow sends
)

func (r Role) String() string {
	switch r {
	case Receive:
		return "receive"
	case Send:
		return "send"
	case Request:
		return "request"
	case Write:
		return "write"
	case Follow:
		return "follow"
	case Look:
		return "look"
	case Give:
		return "give"
	}
	return "unknown"
}

// Open asks for a port of a flow. The descriptor of a TCP connection comes with the role Give:
//
//	 0     64  flow, and zeros: at least one
//	64      4  role
//	68      4  depth
//	72      8  from
type Open struct {
	Flow  string
	Role  Role
	Depth uint32 // entries of each ring; 0: as many as the flow allows
	// From is the sequence with which a program goes on that submits messages and has had the flow open before; 0: it
	// has not. A flow that keeps no messages, and so does not know the session, goes on with it. If the flow has said
	// that it takes each message once, this is the sequence behind the last message that the program has submitted.
	From uint64
}

// Opened answers an Open. For a channel, Port is the port, Entries the slots, Next the writer's next sequence or the
// one that the reader reads next, Size the bytes of the ring, Align those of a slot and Longest the longest message; the
// descriptors are the ring, and for the writer the page of who is there and two for each reader, its page and a socket
// that wakes it; for a reader its page and that socket.
//
// For a state, Size is the bytes of its memory, and the descriptor is the memory. The port does not end before the
// connection does.
//
// For a connection that the program gives, only Port says something, and there is no descriptor. The daemon closes the port
// when it does not send on the connection any more.
//
// For a flow two descriptors come with it: of the port's rings, and one end of a socket pair that
// wakes either side. The frames that the program may fill come over the ring RingDone, with sequence 0. Align is Once if
// the flow takes each message once: then the program does not submit messages again that have no receipt, and nobody knows
// what became of them.
//
//	 0      4  port
//	 4      4  entries of each ring, a power of two
//	 8      8  next
//	16      8  size
//	24      4  align
//	28      4  longest
type Opened struct {
	Port    uint32
	Entries uint32
	// Next is the sequence that the flow expects next of the program's session: what is before it is done.
	Next uint64
	// Size is the size of the file or device in bytes, of which requests are in multiples of Align.
	Size  uint64
	Align uint32
	// Longest is the longest message in bytes.
	Longest uint32
}

// Once is in Opened.Align for the role Send: no message may be submitted again.
const Once = 1

// Close is the program's, which then gets a Closed. The body of both begins with the number of the port.
type Close struct{ Port uint32 }

// Mapped says that the writer of a channel has mapped its ring. The daemon then forbids every further mapping to
// write, and lets readers in. The body is the number of the port.
type Mapped struct{ Port uint32 }

// Closed says that a port has ended:
//
//	0      4  port
//	4      4  reason
//	8         text
type Closed struct {
	Port uint32
	Refusal
}

// ErrMessage says that a message is malformed.
var ErrMessage = errors.New("malformed message")

// Append appends the message that body is: a pointer to one of the types above. End messages are Refusals with end.
func Append(b []byte, body any, end bool) ([]byte, error) {
	start := len(b)
	b = append(b, magic...)
	b = append(b, Version, 0, 0, 0)
	var kind Kind
	var err error
	switch m := body.(type) {
	case *Hello:
		kind = KindHello
		b, err = appendName(b, m.Name)
		b = le.AppendUint64(le.AppendUint64(b, m.Session), 0)
	case *Welcome:
		kind = KindWelcome
		b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, m.Boot), m.In), m.Out)
		b = le.AppendUint32(le.AppendUint32(b, m.Frame), 0)
	case *Refusal:
		if kind = KindRefusal; end {
			kind = KindEnd
		}
		b = appendRefusal(b, m)
	case *Open:
		kind = KindOpen
		b, err = appendName(b, m.Flow)
		b = le.AppendUint64(le.AppendUint32(le.AppendUint32(b, uint32(m.Role)), m.Depth), m.From)
	case *Opened:
		kind = KindOpened
		b = appendOpened(b, m)
	case *Close:
		kind = KindClose
		b = le.AppendUint32(b, m.Port)
	case *Mapped:
		kind = KindMapped
		b = le.AppendUint32(b, m.Port)
	case *Closed:
		kind = KindClosed
		b = appendRefusal(le.AppendUint32(b, m.Port), &m.Refusal)
	default:
		err = fmt.Errorf("%T is no message", body)
	}
	b[start+5] = byte(kind)
	le.PutUint16(b[start+6:], uint16(len(b)-start-headerLen))
	return b, err
}

func appendName(b []byte, name string) ([]byte, error) {
	if len(name) > MaxName || strings.ContainsRune(name, 0) {
		return b, fmt.Errorf("%q is no name: it has at most %d bytes, and no zero", name, MaxName)
	}
	n := len(b)
	b = append(b, make([]byte, nameLen)...)
	copy(b[n:], name)
	return b, nil
}

func appendRefusal(b []byte, r *Refusal) []byte {
	text := r.Text
	if len(text) > maxText {
		text = text[:maxText]
	}
	return append(le.AppendUint32(b, uint32(r.Reason)), text...)
}

func appendOpened(b []byte, m *Opened) []byte {
	b = le.AppendUint32(le.AppendUint32(b, m.Port), m.Entries)
	b = le.AppendUint64(le.AppendUint64(b, m.Next), m.Size)
	return le.AppendUint32(le.AppendUint32(b, m.Align), m.Longest)
}

// bodyLen is the length of the bodies that have a fixed one.
var bodyLen = map[Kind]int{KindHello: nameLen + 16, KindWelcome: 32, KindOpen: nameLen + 16, KindOpened: 32, KindClose: 4, KindMapped: 4}

// Parse parses a message. The error is BadVersion or ErrMessage. The result is a pointer to one of the types of
// messages; end says that a Refusal is an End message.
func Parse(b []byte) (body any, end bool, err error) {
	if len(b) < headerLen || string(b[:4]) != magic {
		return nil, false, ErrMessage
	}
	if b[4] != Version {
		return nil, false, BadVersion
	}
	kind, rest := Kind(b[5]), b[headerLen:]
	if int(le.Uint16(b[6:])) != len(rest) {
		return nil, false, ErrMessage
	}
	if n, fixed := bodyLen[kind]; fixed && len(rest) != n {
		return nil, false, ErrMessage
	}
	body, err = parseBody(kind, rest)
	return body, kind == KindEnd, err
}

func parseBody(kind Kind, b []byte) (any, error) {
	switch kind {
	case KindHello:
		name, ok := nameOf(b)
		m := &Hello{name, le.Uint64(b[nameLen:])}
		if !ok || m.Session == 0 || le.Uint64(b[nameLen+8:]) != 0 {
			return nil, ErrMessage
		}
		return m, nil
	case KindWelcome:
		return &Welcome{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint32(b[24:])}, nil
	case KindRefusal, KindEnd:
		return refusalOf(b)
	case KindOpen:
		name, ok := nameOf(b)
		from := le.Uint64(b[nameLen+8:])
		if !ok || from > math.MaxInt64 {
			return nil, ErrMessage
		}
		return &Open{name, Role(le.Uint32(b[nameLen:])), le.Uint32(b[nameLen+4:]), from}, nil
	case KindOpened:
		return &Opened{le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint32(b[24:]), le.Uint32(b[28:])}, nil
	case KindClose:
		return &Close{le.Uint32(b)}, nil
	case KindMapped:
		return &Mapped{le.Uint32(b)}, nil
	case KindClosed:
		if len(b) < 4 {
			return nil, ErrMessage
		}
		r, err := refusalOf(b[4:])
		if err != nil {
			return nil, err
		}
		return &Closed{le.Uint32(b), *r}, nil
	}
	return nil, ErrMessage
}

// nameOf reads a name: bytes, and zeros behind them.
func nameOf(b []byte) (string, bool) {
	name, rest, found := bytes.Cut(b[:nameLen], []byte{0})
	return string(name), found && len(name) > 0 && len(bytes.Trim(rest, "\x00")) == 0
}

func refusalOf(b []byte) (*Refusal, error) {
	if len(b) < 4 || len(b) > 4+maxText {
		return nil, ErrMessage
	}
	return &Refusal{Reason(le.Uint32(b)), strings.ToValidUTF8(string(b[4:]), "?")}, nil
}
