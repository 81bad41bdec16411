// Package fix writes and reads messages of FIX 4.4 (FIX Trading Community): Logon, Heartbeat, NewOrderSingle and
// ExecutionReport. It is part of the trading example, and not of any data path.
//
// A message is fields, each a tag, "=", a value and the byte 1. It begins with 8 (the version), 9 (the length of what
// follows, up to the checksum) and 35 (its type), and ends with 10 (the checksum). Nothing here blocks or knows a
// connection or a session: the caller has the bytes, and numbers its messages. What came from the other end is checked,
// and refused with an error.
package fix

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The parts of a message that are always the same.
const (
	begin       = "8=FIX.4.4\x019="
	trailerLen  = len("10=000\x01")
	soh         = '\x01'
	maxBody     = 4096 // bytes of a body that Next accepts
	maxFields   = 128  // of a message that Parse accepts
	maxTag      = 99999
	timeLayout  = "20060102-15:04:05.000"
	wholeSecond = "20060102-15:04:05"
)

// ErrDamaged is the error of bytes that are no message.
var ErrDamaged = errors.New("damaged message of FIX")

// Types of messages.
const (
	TypeHeartbeat = "0"
	TypeReport    = "8"
	TypeLogon     = "A"
	TypeNewOrder  = "D"
)

// Header is what all messages have.
type Header struct {
	Sender, Target string
	Number         uint64 // of the message, from 1 on
	At             time.Time
}

// Field is a field of a message. Value refers to the bytes from which it was read.
type Field struct {
	Tag   int
	Value []byte
}

// Message is a message that Parse has checked.
type Message struct {
	Type   string
	Header Header
	fields []Field // behind the header
}

// Next returns the length of the first message of a byte stream; 0 if it is not complete. The message has the right
// checksum. The error is ErrDamaged, and the connection cannot go on.
func Next(stream []byte) (int, error) {
	if n := min(len(stream), len(begin)); string(stream[:n]) != begin[:n] {
		return 0, fmt.Errorf("%w: it begins with %q", ErrDamaged, stream[:n])
	} else if n < len(begin) {
		return 0, nil
	}
	body, at := 0, len(begin)
	for ; at < len(stream) && stream[at] != soh; at++ {
		if stream[at] < '0' || stream[at] > '9' {
			return 0, fmt.Errorf("%w: its length has the character %q", ErrDamaged, stream[at])
		}
		if body = body*10 + int(stream[at]-'0'); body > maxBody || at-len(begin) >= 8 {
			return 0, fmt.Errorf("%w: its length is more than %d", ErrDamaged, maxBody)
		}
	}
	end := at + 1 + body + trailerLen
	switch {
	case at < len(stream) && at == len(begin):
		return 0, fmt.Errorf("%w: it has no length", ErrDamaged)
	case len(stream) < end:
		return 0, nil
	}
	if want := trailer(stream[:end-trailerLen]); string(stream[end-trailerLen:end]) != want {
		return 0, fmt.Errorf("%w: it ends with %q, and its checksum is that of %q", ErrDamaged, stream[end-trailerLen:end], want)
	}
	return end, nil
}

// trailer returns the last field of a message: the sum of all bytes in front of it.
func trailer(b []byte) string {
	sum := byte(0)
	for _, c := range b {
		sum += c
	}
	return fmt.Sprintf("10=%03d\x01", sum)
}

// Parse reads a message of the length that Next has returned.
func Parse(b []byte) (m Message, err error) {
	if n, err := Next(b); err != nil || n != len(b) {
		return m, errors.Join(err, fmt.Errorf("%w: %d bytes are not one message", ErrDamaged, len(b)))
	}
	body := b[len(begin) : len(b)-trailerLen]
	body = body[bytes.IndexByte(body, soh)+1:]
	for len(body) > 0 {
		var f Field
		if f, body, err = field(body); err != nil {
			return m, err
		}
		if len(m.fields) == maxFields {
			return m, fmt.Errorf("%w: it has more than %d fields", ErrDamaged, maxFields)
		}
		m.fields = append(m.fields, f)
	}
	return m, m.header()
}

// field reads a field, and returns the rest.
func field(b []byte) (Field, []byte, error) {
	end := bytes.IndexByte(b, soh)
	if end < 0 {
		return Field{}, nil, fmt.Errorf("%w: its last field %q has no end", ErrDamaged, b)
	}
	tag, value, found := bytes.Cut(b[:end], []byte("="))
	n, ok := digits(tag)
	if !found || !ok || tag[0] == '0' || n > maxTag || len(value) == 0 {
		return Field{}, nil, fmt.Errorf("%w: %q is not a field", ErrDamaged, b[:end])
	}
	return Field{int(n), value}, b[end+1:], nil
}

// header takes the fields of the header from the others.
func (m *Message) header() error {
	if len(m.fields) == 0 || m.fields[0].Tag != 35 {
		return fmt.Errorf("%w: its type is not its first field", ErrDamaged)
	}
	m.Type = string(m.fields[0].Value)
	rest, seen := m.fields[:0], map[int]bool{}
	for _, f := range m.fields[1:] {
		if seen[f.Tag] {
			return fmt.Errorf("%w: it has field %d twice", ErrDamaged, f.Tag)
		}
		seen[f.Tag] = true
		ok := true
		switch f.Tag {
		case 49:
			m.Header.Sender = string(f.Value)
		case 56:
			m.Header.Target = string(f.Value)
		case 34:
			m.Header.Number, ok = digits(f.Value)
		case 52:
			m.Header.At, ok = parseTime(f.Value)
		case 8, 9, 10, 35:
			ok = false
		default:
			rest = append(rest, f)
		}
		if !ok {
			return fmt.Errorf("%w: its header has %d=%q", ErrDamaged, f.Tag, f.Value)
		}
	}
	m.fields = rest
	if !seen[49] || !seen[56] || !seen[34] || !seen[52] || m.Header.Number == 0 {
		return fmt.Errorf("%w: its header lacks a field of 49, 56, 34 and 52", ErrDamaged)
	}
	return nil
}

// Text returns the value of a field; empty: there is none.
func (m *Message) Text(tag int) string {
	for _, f := range m.fields {
		if f.Tag == tag {
			return string(f.Value)
		}
	}
	return ""
}

// number returns the value of a field that must be a number without a sign.
func (m *Message) number(tag int) (uint64, error) {
	n, ok := digits([]byte(m.Text(tag)))
	if !ok {
		return 0, fmt.Errorf("%w: %d=%q is not a number", ErrDamaged, tag, m.Text(tag))
	}
	return n, nil
}

// price returns the value of a field that must be a price.
func (m *Message) price(tag int) (Price, error) {
	text := m.Text(tag)
	p, ok := parsePrice(text)
	if !ok {
		return 0, fmt.Errorf("%w: %d=%q is not a price", ErrDamaged, tag, text)
	}
	return p, nil
}

// character returns the value of a field that must be one character.
func (m *Message) character(tag int) (byte, error) {
	text := m.Text(tag)
	if len(text) != 1 {
		return 0, fmt.Errorf("%w: %d=%q is not one character", ErrDamaged, tag, text)
	}
	return text[0], nil
}

// builder collects the fields of a message.
type builder struct {
	body []byte
	err  error
}

// start begins a message.
func start(kind string, h *Header) *builder {
	b := &builder{}
	b.text(35, kind)
	b.text(49, h.Sender)
	b.text(56, h.Target)
	b.number(34, h.Number)
	b.text(52, h.At.UTC().Format(timeLayout))
	return b
}

// text adds a field. It must have a value, without the byte that ends it.
func (b *builder) text(tag int, value string) {
	if value == "" || bytes.IndexByte([]byte(value), soh) >= 0 {
		b.err = errors.Join(b.err, fmt.Errorf("field %d of a message of FIX cannot be %q", tag, value))
	}
	b.body = append(append(append(strconv.AppendInt(b.body, int64(tag), 10), '='), value...), soh)
}

func (b *builder) number(tag int, n uint64) { b.text(tag, strconv.FormatUint(n, 10)) }

func (b *builder) character(tag int, c byte) { b.text(tag, string([]byte{c})) }

// finish appends the whole message to dst.
func (b *builder) finish(dst []byte) ([]byte, error) {
	if len(b.body) > maxBody {
		b.err = errors.Join(b.err, fmt.Errorf("a message of FIX with %d bytes is too long; at most %d are possible", len(b.body), maxBody))
	}
	if b.err != nil {
		return dst, b.err
	}
	from := len(dst)
	dst = append(strconv.AppendInt(append(dst, begin...), int64(len(b.body)), 10), soh)
	dst = append(dst, b.body...)
	return append(dst, trailer(dst[from:])...), nil
}

// digits reads a number without a sign.
func digits(b []byte) (uint64, bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	return n, err == nil
}

func parseTime(b []byte) (time.Time, bool) {
	for _, layout := range []string{timeLayout, wholeSecond} {
		if len(b) == len(layout) {
			t, err := time.Parse(layout, string(b))
			return t, err == nil
		}
	}
	return time.Time{}, false
}
