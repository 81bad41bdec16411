// Package soupbin writes and reads the packets of SoupBinTCP (Nasdaq, SoupBinTCP, versions 3.00 and 4.00), in which
// messages such as those of OUCH travel over TCP. It is part of the trading example, and not of any data path.
//
// A packet is a length of two bytes, big-endian, a type of one byte, and the payload. The length counts the type and
// the payload. Nothing here blocks or knows a connection: the caller has the bytes. What came from the other end is
// checked, and refused with an error.
package soupbin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Type is the type of a packet.
type Type byte

// The types. The server sends the first group, the client the second, both the last.
const (
	LoginAccepted   Type = 'A'
	LoginRejected   Type = 'J'
	SequencedData   Type = 'S'
	ServerHeartbeat Type = 'H'
	EndOfSession    Type = 'Z'

	LoginRequest    Type = 'L'
	UnsequencedData Type = 'U'
	ClientHeartbeat Type = 'R'
	LogoutRequest   Type = 'O'

	Debug Type = '+'
)

const (
	// HeaderLen is the number of bytes in front of a payload.
	HeaderLen = 3
	// MaxPacket is the length of the longest packet that Next accepts. A length field can say more, but no message of
	// OUCH is near it. So what claims more is damaged, or hostile.
	MaxPacket = 4096
	// HeartbeatInterval is how long an end may be silent until it must send a heartbeat.
	HeartbeatInterval = time.Second
	// Timeout is how long the other end may be silent until it counts as gone.
	Timeout = 15 * time.Second
)

// Sizes of the parts of packets in bytes.
const (
	userLen, passwordLen, sessionLen, sequenceLen, timeoutLen = 6, 10, 10, 20, 5

	loginLen3 = userLen + passwordLen + sessionLen + sequenceLen
	loginLen4 = loginLen3 + timeoutLen
)

// ErrDamaged is the error of a packet that contradicts itself.
var ErrDamaged = errors.New("damaged packet of SoupBinTCP")

// Packet is a packet. Its payload refers to the bytes from which it was read.
type Packet struct {
	Type    Type
	Payload []byte
}

// Next returns the first packet of a byte stream, and its length in bytes with the header. The length is 0 if the
// packet is not complete. The error is ErrDamaged, and the connection cannot go on.
func Next(stream []byte) (Packet, int, error) {
	if len(stream) < 2 {
		return Packet{}, 0, nil
	}
	n := 2 + int(binary.BigEndian.Uint16(stream))
	switch {
	case n < HeaderLen:
		return Packet{}, 0, fmt.Errorf("%w: it has no type", ErrDamaged)
	case n > MaxPacket:
		return Packet{}, 0, fmt.Errorf("%w: its length is %d, and at most %d are possible", ErrDamaged, n, MaxPacket)
	case len(stream) > 2 && !known(Type(stream[2])):
		return Packet{}, 0, fmt.Errorf("%w: its type is %q", ErrDamaged, stream[2])
	case n > len(stream):
		return Packet{}, 0, nil
	}
	return Packet{Type(stream[2]), stream[HeaderLen:n:n]}, n, nil
}

func known(t Type) bool {
	switch t {
	case LoginAccepted, LoginRejected, SequencedData, ServerHeartbeat, EndOfSession, LoginRequest, UnsequencedData, ClientHeartbeat, LogoutRequest, Debug:
		return true
	}
	return false
}

// Append appends a packet to b. The payload must fit a packet of MaxPacket bytes.
func Append(b []byte, t Type, payload ...byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(1+len(payload)))
	return append(append(b, byte(t)), payload...)
}

// Login is what a client says at first.
type Login struct {
	User, Password string
	Session        string        // empty: the current one
	Sequence       uint64        // of the first message that is wanted; 0: the next one that the server makes
	Timeout        time.Duration // without heartbeats, in whole milliseconds up to 99999; 0: a login of version 3.00
}

// Append appends the packet of the login to b. It refuses what does not fit.
func (l *Login) Append(b []byte) ([]byte, error) {
	ms := l.Timeout.Milliseconds()
	switch {
	case !fits(l.User, userLen) || !fits(l.Password, passwordLen) || !fits(l.Session, sessionLen):
		return b, fmt.Errorf("user, password and session of a login have at most %d, %d and %d characters of ASCII", userLen, passwordLen, sessionLen)
	case ms < 0 || ms > 99999:
		return b, fmt.Errorf("the timeout %v of a login is not from 0 to 99.999s", l.Timeout)
	}
	p := fmt.Appendf(nil, "%-*s%-*s%*s%*d", userLen, l.User, passwordLen, l.Password, sessionLen, l.Session, sequenceLen, l.Sequence)
	if ms > 0 {
		p = fmt.Appendf(p, "%*d", timeoutLen, ms)
	}
	return Append(b, LoginRequest, p...), nil
}

// Parse reads the payload of a login.
func (l *Login) Parse(p []byte) (err error) {
	if len(p) != loginLen3 && len(p) != loginLen4 {
		return fmt.Errorf("%w: a login of %d bytes", ErrDamaged, len(p))
	}
	user, p := p[:userLen], p[userLen:]
	password, p := p[:passwordLen], p[passwordLen:]
	session, p := p[:sessionLen], p[sessionLen:]
	*l = Login{User: text(user), Password: text(password), Session: text(session)}
	if l.Sequence, err = digits(p[:sequenceLen]); err != nil || len(p) == sequenceLen {
		return err
	}
	ms, err := digits(p[sequenceLen:])
	l.Timeout = time.Duration(ms) * time.Millisecond
	return err
}

// Accepted is the server's answer to a login.
type Accepted struct {
	Session  string
	Sequence uint64 // of the next message
}

// Append appends the packet of the answer to b. The session has at most ten characters, of ASCII.
func (a *Accepted) Append(b []byte) []byte {
	return Append(b, LoginAccepted, fmt.Appendf(nil, "%*.*s%*d", sessionLen, sessionLen, a.Session, sequenceLen, a.Sequence)...)
}

// Parse reads the payload of the answer.
func (a *Accepted) Parse(p []byte) (err error) {
	if len(p) != sessionLen+sequenceLen {
		return fmt.Errorf("%w: an answer to a login of %d bytes", ErrDamaged, len(p))
	}
	a.Session = text(p[:sessionLen])
	a.Sequence, err = digits(p[sessionLen:])
	return err
}

// Rejection is why a server refuses a login.
type Rejection byte

// The reasons.
const (
	NotAuthorized Rejection = 'A'
	NoSession     Rejection = 'S'
)

// Append appends the packet of the refusal to b.
func (r Rejection) Append(b []byte) []byte { return Append(b, LoginRejected, byte(r)) }

// Parse reads the payload of the refusal.
func (r *Rejection) Parse(p []byte) error {
	if len(p) != 1 {
		return fmt.Errorf("%w: a refusal of %d bytes", ErrDamaged, len(p))
	}
	*r = Rejection(p[0])
	return nil
}

// Error says why in words.
func (r Rejection) Error() string {
	switch r {
	case NotAuthorized:
		return "the login is refused: user and password are not right"
	case NoSession:
		return "the login is refused: there is no such session"
	}
	return fmt.Sprintf("the login is refused: reason %q", byte(r))
}

// fits reports whether a text is one of up to n characters of ASCII that can be seen.
func fits(s string, n int) bool {
	return len(s) <= n && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// text returns a field without the spaces around it.
func text(b []byte) string { return string(bytes.Trim(b, " ")) }

// digits reads a number that is padded with spaces. Spaces alone are 0.
func digits(b []byte) (uint64, error) {
	s := text(b)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || s[0] == '+' {
		return 0, fmt.Errorf("%w: %q is not a number", ErrDamaged, s)
	}
	return n, nil
}
