package order

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
)

// verdict says which limit refuses an order. It is an index.
type verdict uint8

const (
	permitted   verdict = iota
	overSize            // it is longer than the limit
	overRate            // there were too many before it
	offPrice            // its price is outside of the band
	noPrice             // it ends before its price does
	stopped             // the kill switch is on
	unconnected         // there is no connection
	ended               // it would have had to wait, and the flow ended
	late                // it would have had to wait, and a rule has made it
	notOne              // the message is not exactly one order
	verdicts            // how many there are
	counted             // it is refused, and counted already
)

var verdictNames = [verdicts]string{"permitted", "over_size", "over_rate", "price_outside", "price_missing", "orders_stopped", "not_connected", "flow_ended", "too_late", "not_one_order"}

// limits are the risk limits of a flow. They belong to the worker's thread.
type limits struct {
	size   int
	price  *config.PriceBand
	length *config.OrderLength // nil: each message is one order

	// The bucket of the rate: nanoseconds of credit, of which each order takes each.
	each   int64 // 0: no limit
	most   int64 // credit of a full bucket
	credit int64
	last   int64 // time of the last addition, in nanoseconds
}

func newLimits(c *config.OrderLimits) limits {
	l := limits{size: int(c.Size), price: c.Price, length: c.Length}
	if c.Rate > 0 {
		l.each = int64(time.Second) / int64(c.Rate)
		l.most = l.each * int64(max(1, c.Burst))
		l.credit = l.most
	}
	return l
}

// check says whether an order may leave now, in nanoseconds of a clock that does not go back. Only an order that may leave
// counts for the rate.
func (l *limits) check(payload []byte, now int64) verdict {
	if l.size > 0 && len(payload) > l.size {
		return overSize
	}
	if l.length != nil && !isOne(l.length, payload) {
		return notOne
	}
	if l.price != nil {
		if v := priceOf(l.price, payload); v != permitted {
			return v
		}
	}
	if l.each == 0 {
		return permitted
	}
	if passed := now - l.last; passed > 0 {
		l.last = now
		l.credit = min(l.most, l.credit+min(passed, l.most))
	}
	if l.credit < l.each {
		return overRate
	}
	l.credit -= l.each
	return permitted
}

// isOne reports whether a message is exactly one order. The exchange reads a stream: a message that is less, or more, would
// have an order at a place where no limit looks at it.
func isOne(at *config.OrderLength, payload []byte) bool {
	if at.Protocol == config.FIX {
		return isOneFIX(payload)
	}
	if at.Offset+at.Bits/8 > len(payload) {
		return false
	}
	var order binary.ByteOrder = binary.BigEndian
	if at.Order == config.LittleEndian {
		order = binary.LittleEndian
	}
	field := payload[at.Offset:]
	if at.Bits == 16 {
		return int(order.Uint16(field))+at.Add == len(payload)
	}
	return uint64(order.Uint32(field))+uint64(at.Add) == uint64(len(payload))
}

// isOneFIX is isOne for FIX: 8=FIX.4.4|9=LENGTH|…|10=SUM|, where LENGTH counts what is between it and the field of the sum.
func isOneFIX(b []byte) bool {
	const begin, length, trailer, soh = "8=FIX", "9=", "10=123|", 1
	at := bytes.IndexByte(b, soh)
	if at < len(begin) || string(b[:len(begin)]) != begin {
		return false
	}
	b = b[at+1:]
	at = bytes.IndexByte(b, soh)
	if at <= len(length) || string(b[:len(length)]) != length {
		return false
	}
	body := 0
	for _, digit := range b[len(length):at] {
		if digit < '0' || digit > '9' || body > len(b) {
			return false
		}
		body = 10*body + int(digit-'0')
	}
	b = b[at+1:]
	return len(b) == body+len(trailer) && string(b[body:body+3]) == trailer[:3] && b[len(b)-1] == soh
}

// giveBack undoes the rate's part of a check whose order has not left.
func (l *limits) giveBack() {
	if l.each > 0 {
		l.credit = min(l.most, l.credit+l.each)
	}
}

// priceOf compares the price of an order with a band.
func priceOf(b *config.PriceBand, payload []byte) verdict {
	if b.Is != "" {
		if end := b.At + len(b.Is); end > len(payload) || string(payload[b.At:end]) != b.Is {
			return permitted
		}
	}
	if b.Offset+b.Bits/8 > len(payload) {
		return noPrice
	}
	field, price := payload[b.Offset:], uint64(0)
	if b.Bits == 32 {
		price = uint64(binary.BigEndian.Uint32(field))
	} else {
		price = binary.BigEndian.Uint64(field)
	}
	if price < b.Min || price > b.Max {
		return offPrice
	}
	return permitted
}
