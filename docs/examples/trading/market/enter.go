package market

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/docs/examples/trading/ouch"
)

// Enter returns the order as a message of OUCH. The token is "U" and the order's number, prices are in cents, and the
// order takes what the tick offers: who bids is sold to.
func (o *Order) Enter() (ouch.Enter, error) {
	m := ouch.Enter{
		Side: ouch.Sell, Shares: uint32(o.Quantity), TimeInForce: ouch.Immediate,
		Firm: [4]byte([]byte("UNIF")), Display: 'Y', Capacity: 'P', Sweep: 'N', Cross: 'N', Customer: 'N',
	}
	if o.Side == Ask {
		m.Side = ouch.Buy
	}
	const cent = 100 // of 1/10000
	switch {
	case o.Number == 0 || o.Number > mostNumber:
		return m, fmt.Errorf("order %d: a token has the numbers from 1 to %d", o.Number, uint64(mostNumber))
	case o.Quantity == 0 || o.Quantity > ouch.MaxShares:
		return m, fmt.Errorf("order %d: %d shares, and from 1 to %d are possible", o.Number, o.Quantity, ouch.MaxShares)
	case o.Price == 0 || o.Price > uint64(ouch.MaxPrice)/cent:
		return m, fmt.Errorf("order %d: the price %d, and from 1 to %d are possible", o.Number, o.Price, ouch.MaxPrice/cent)
	}
	m.Price = ouch.Price(o.Price * cent)
	copy(m.Token[:], fmt.Sprintf("U%0*d", len(m.Token)-1, o.Number))
	copy(m.Stock[:], fmt.Sprintf("UD%-6d", o.Instrument))
	return m, nil
}

const mostNumber = 9_999_999_999_999 // 13 digits

// NumberOf returns the number in a token of an order; 0: it is not one of Enter's.
func NumberOf(t ouch.Token) (n uint64) {
	if t[0] != 'U' {
		return 0
	}
	for _, c := range t[1:] {
		if c < '0' || c > '9' {
			return 0
		}
		n = 10*n + uint64(c-'0')
	}
	return n
}

const day = 24 * time.Hour

// SinceMidnight returns a time as messages of OUCH have it: nanoseconds since midnight, of UTC.
func SinceMidnight(t time.Time) uint64 { return uint64(t.UnixNano()) % uint64(day) }

// Between returns the nanoseconds from a time since 1970 to a time of an exchange, within half a day.
func Between(from int64, to uint64) int64 {
	d := (int64(to) - from) % int64(day)
	if d < -int64(day)/2 {
		d += int64(day)
	}
	return d
}
