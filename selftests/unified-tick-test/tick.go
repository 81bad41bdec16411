package main

import (
	"encoding/binary"
	"fmt"

	"github.com/unifiedd/unifiedd/docs/examples/trading/ouch"
	"github.com/unifiedd/unifiedd/docs/examples/trading/soupbin"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// tickLen is the length of a tick, and of a plain order, in bytes.
const tickLen = 32

// The first byte of a tick and of a plain order.
const (
	isTick  = 'T'
	isOrder = 'O'
)

// tick is a tick, and the order that answers it: to take what is offered.
type tick struct {
	sequence uint64 // from 1 on
	side     byte   // of the order: 'B' buys, 'S' sells
	price    uint32 // in 1/10000
	shares   uint32
	symbol   [8]byte
}

// tickOf returns tick n.
func tickOf(seed, n uint64) tick {
	var random [16]byte
	harness.Fill(random[:], seed, n)
	le := binary.LittleEndian
	t := tick{sequence: n, side: 'B', price: 1 + le.Uint32(random[:])%uint32(ouch.MaxPrice), shares: 1 + le.Uint32(random[4:])%ouch.MaxShares, symbol: [8]byte{'U', 'D', 0, 0, 0, 0, ' ', ' '}}
	if random[8]&1 == 1 {
		t.side = 'S'
	}
	for i := range t.symbol[2:6] {
		t.symbol[2+i] = 'A' + random[9+i]%26
	}
	return t
}

// put writes the tick, or the order, to the first bytes of b.
func (t *tick) put(b []byte, first byte) {
	be := binary.BigEndian
	b[0], b[1], b[2], b[3] = first, t.side, 0, 0
	be.PutUint32(b[4:], t.price)
	be.PutUint64(b[8:], t.sequence)
	be.PutUint32(b[16:], t.shares)
	copy(b[20:], t.symbol[:])
	be.PutUint32(b[28:], 0)
}

// read reads a tick or an order.
func (t *tick) read(b []byte, first byte) error {
	if len(b) < tickLen || b[0] != first {
		return fmt.Errorf("%d bytes that begin with %q are not a message that begins with %q", len(b), b[:min(len(b), 1)], first)
	}
	be := binary.BigEndian
	*t = tick{sequence: be.Uint64(b[8:]), side: b[1], price: be.Uint32(b[4:]), shares: be.Uint32(b[16:]), symbol: [8]byte(b[20:])}
	return nil
}

// moldLen is the length of what is in front of the tick in a packet of MoldUDP64: session, sequence, count of messages,
// length of the message.
const moldLen = 10 + 8 + 2 + 2

// putMold writes what is in front of messages of MoldUDP64. It returns how many bytes that is without a message.
func putMold(b []byte, session string, sequence uint64, count uint16, length int) int {
	copy(b, "          ")
	copy(b, session)
	binary.BigEndian.PutUint64(b[10:], sequence)
	binary.BigEndian.PutUint16(b[18:], count)
	if count == 1 {
		binary.BigEndian.PutUint16(b[20:], uint16(length))
	}
	return 20
}

// moldMessages calls f for each message of a packet of MoldUDP64. What lies about its lengths is refused.
func moldMessages(b []byte, f func([]byte) error) error {
	if len(b) < 20 {
		return fmt.Errorf("a packet of MoldUDP64 with %d bytes", len(b))
	}
	count, rest := binary.BigEndian.Uint16(b[18:]), b[20:]
	for i := uint16(0); i < count && count != endOfSession; i++ {
		if len(rest) < 2 || int(binary.BigEndian.Uint16(rest)) > len(rest)-2 {
			return fmt.Errorf("a packet of MoldUDP64 ends within message %d of %d", i+1, count)
		}
		n := 2 + int(binary.BigEndian.Uint16(rest))
		if err := f(rest[2:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// endOfSession is the count of messages that ends a session of MoldUDP64.
const endOfSession = 0xffff

// enterLen is the length of an order of OUCH on the connection.
const enterLen = soupbin.HeaderLen + ouch.EnterLen

// enter is an order of OUCH that is ready but for the fields of the tick.
func enter() []byte {
	m := ouch.Enter{
		TimeInForce: ouch.Immediate, Firm: [4]byte([]byte("UNIF")), Display: 'Y', Capacity: 'P', Sweep: 'N', Cross: 'N', Customer: 'N',
	}
	return soupbin.Append(nil, soupbin.UnsequencedData, m.Append(nil)...)
}

// fillEnter writes the tick into an order of OUCH, whose token is "T" and the sequence number in 13 digits.
func (t *tick) fillEnter(b []byte) {
	b = b[soupbin.HeaderLen:]
	putToken(b[ouch.EnterToken:], t.sequence)
	b[ouch.EnterSide] = t.side
	binary.BigEndian.PutUint32(b[ouch.EnterShares:], t.shares)
	copy(b[ouch.EnterStock:], t.symbol[:])
	binary.BigEndian.PutUint32(b[ouch.EnterPrice:], t.price)
}

func putToken(b []byte, n uint64) {
	b[0] = 'T'
	for i := len(ouch.Token{}) - 1; i > 0; i-- {
		b[i] = '0' + byte(n%10)
		n /= 10
	}
}

// tokenNumber returns the sequence number in a token; 0: there is none.
func tokenNumber(t ouch.Token) (n uint64) {
	for _, c := range t[1:] {
		if c < '0' || c > '9' || t[0] != 'T' {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}
