package order

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
)

// TestRate: an idle flow may send a burst, and then as many orders in any time as the rate says.
func TestRate(t *testing.T) {
	l := newLimits(&config.OrderLimits{Rate: 1000, Burst: 5})
	now := int64(math.MaxInt64 / 2) // the clock has been going for long
	sent := 0
	for range 20 {
		if l.check([]byte{1}, now) == permitted {
			sent++
		}
	}
	if sent != 5 {
		t.Errorf("%d orders of a burst of 5 may leave", sent)
	}
	sent = 0
	for range 10 * 100 { // a second, ten orders each millisecond
		now += int64(100 * time.Microsecond)
		switch v := l.check([]byte{1}, now); v {
		case permitted:
			sent++
		case overRate:
		default:
			t.Fatalf("refused because of %s", verdictNames[v])
		}
	}
	if sent != 100 {
		t.Errorf("%d orders may leave in 100 ms at 1000 a second", sent)
	}
	if l.giveBack(); l.credit > l.most {
		t.Error("there is more credit than a burst")
	}
	now -= int64(time.Hour) // never goes back, and gives nothing if it did
	l.credit = 0
	if v := l.check([]byte{1}, now); v != overRate {
		t.Errorf("a clock that went back gave credit: %s", verdictNames[v])
	}
}

// TestPrice: prices on the edges of the band may leave, others and orders without a whole price may not, and messages
// that are no orders are not looked at.
func TestPrice(t *testing.T) {
	order := func(bits int, price uint64) []byte {
		b := []byte("UO..")
		if bits == 32 {
			return binary.BigEndian.AppendUint32(b, uint32(price))
		}
		return binary.BigEndian.AppendUint64(b, price)
	}
	for _, bits := range []int{32, 64} {
		l := newLimits(&config.OrderLimits{Size: 20, Price: &config.PriceBand{Offset: 4, Bits: bits, Min: 100, Max: 200, At: 0, Is: "UO"}})
		for _, c := range []struct {
			payload []byte
			want    verdict
		}{
			{order(bits, 100), permitted}, {order(bits, 200), permitted}, {order(bits, 99), offPrice}, {order(bits, 201), offPrice},
			{order(bits, math.MaxUint64), offPrice}, {order(bits, 150)[:4+bits/8-1], noPrice}, {[]byte("UO"), noPrice},
			{[]byte("U"), permitted}, {[]byte("UX........"), permitted}, {nil, permitted}, {make([]byte, 21), overSize}, {make([]byte, 20), permitted},
		} {
			if got := l.check(c.payload, 0); got != c.want {
				t.Errorf("%d bits, %q: %s, want %s", bits, c.payload, verdictNames[got], verdictNames[c.want])
			}
		}
	}
}

// TestOneOrder: with a length, each message that may leave is exactly one order. An order in parts, several in one message,
// and one behind which something follows, may not: their prices and number would not be looked at.
func TestOneOrder(t *testing.T) {
	for _, c := range []config.OrderLength{
		{Offset: 0, Bits: 16, Order: config.BigEndian, Add: 2}, {Offset: 2, Bits: 16, Order: config.LittleEndian}, {Offset: 0, Bits: 32, Order: config.LittleEndian, Add: 4},
		{Offset: 4, Bits: 32, Order: config.BigEndian, Add: 8},
	} {
		l := newLimits(&config.OrderLimits{Length: &c, Price: &config.PriceBand{Offset: 26, Bits: 32, Max: 10, At: 10, Is: "UO"}, Rate: 1, Burst: 1000})
		order := func(price uint32) []byte {
			b := make([]byte, 26, 36)
			copy(b[10:], "UO")
			b = append(binary.BigEndian.AppendUint32(b, price), "rest"...)
			var put binary.ByteOrder = binary.BigEndian
			if c.Order == config.LittleEndian {
				put = binary.LittleEndian
			}
			if c.Bits == 16 {
				put.PutUint16(b[c.Offset:], uint16(len(b)-c.Add))
			} else {
				put.PutUint32(b[c.Offset:], uint32(len(b)-c.Add))
			}
			return b
		}
		good, dear := order(10), order(99)
		credit := l.credit
		if v := l.check(dear, 0); v != offPrice {
			t.Errorf("%+v: an order of another price: %s", c, verdictNames[v])
		}
		for n := range len(dear) { // in two parts
			if v := l.check(dear[:n], 0); v != notOne {
				t.Errorf("%+v: the first %d bytes: %s", c, n, verdictNames[v])
			}
			if v := l.check(dear[n:], 0); n > 0 && v != notOne {
				t.Errorf("%+v: the rest from %d: %s", c, n, verdictNames[v])
			}
		}
		for name, b := range map[string][]byte{"two orders": append(order(10), dear...), "a byte more": append(order(10), 0)} {
			if v := l.check(b, 0); v != notOne {
				t.Errorf("%+v: %s: %s", c, name, verdictNames[v])
			}
		}
		if l.credit != credit {
			t.Errorf("%+v: what was refused has cost %d", c, credit-l.credit)
		}
		if v := l.check(good, 0); v != permitted {
			t.Errorf("%+v: one order: %s", c, verdictNames[v])
		}
	}
}

// FuzzLimits: no payload and no time makes the check fail, and what may leave is within the limits.
func FuzzLimits(f *testing.F) {
	f.Add([]byte("UO..\x00\x00\x00\x64"), uint16(4), true, uint64(1), uint64(1000), uint16(0), "UO", uint8(9), int64(5))
	f.Add([]byte{}, uint16(65535), false, uint64(0), uint64(math.MaxUint64), uint16(65535), "x", uint8(0), int64(-1))
	f.Fuzz(func(t *testing.T, payload []byte, offset uint16, wide bool, low, high uint64, at uint16, is string, size uint8, now int64) {
		band := &config.PriceBand{Offset: int(offset), Bits: 32, Min: low, Max: high, At: int(at), Is: is}
		if wide {
			band.Bits = 64
		}
		l := newLimits(&config.OrderLimits{Rate: 10, Burst: 3, Size: config.Size(size), Price: band})
		left := 0
		for range 8 {
			if l.check(payload, now) == permitted {
				left++
			}
		}
		if left > 3 {
			t.Fatalf("%d orders of a burst of 3 may leave at once", left)
		}
		if left == 0 {
			return
		}
		if size > 0 && len(payload) > int(size) {
			t.Fatalf("an order of %d bytes may leave, and at most %d are permitted", len(payload), size)
		}
		named := is == "" || len(payload) >= int(at)+len(is) && string(payload[at:int(at)+len(is)]) == is
		if !named {
			return
		}
		price := uint64(0)
		for _, b := range payload[offset : int(offset)+band.Bits/8] { // or it has no price, and must not leave
			price = price<<8 | uint64(b)
		}
		if price < low || price > high {
			t.Fatalf("an order at %d may leave, and %d to %d are permitted", price, low, high)
		}
	})
}

// TestOneOrderFIX: of messages of FIX one that is whole may leave. A part, two at once, and one whose length is another one or
// no number may not.
func TestOneOrderFIX(t *testing.T) {
	l := newLimits(&config.OrderLimits{Length: &config.OrderLength{Protocol: config.FIX}, Rate: 1, Burst: 1000})
	message := func(length int, body string) []byte {
		return []byte(strings.ReplaceAll(fmt.Sprintf("8=FIX.4.4|9=%d|%s10=123|", length, body), "|", "\x01"))
	}
	const body = "35=D|49=A|56=B|11=1|54=1|38=100|44=9.5|"
	one := message(len(body), body)
	if v := l.check(one, 0); v != permitted {
		t.Errorf("a whole message: %s", verdictNames[v])
	}
	credit := l.credit
	for n := range len(one) {
		if v := l.check(one[:n], 0); v != notOne {
			t.Errorf("the first %d bytes: %s", n, verdictNames[v])
		}
		if n == 0 {
			continue
		}
		if v := l.check(one[n:], 0); v != notOne {
			t.Errorf("the rest from %d: %s", n, verdictNames[v])
		}
	}
	for name, b := range map[string][]byte{
		"two": append(slices.Clone(one), one...), "too long a length": message(len(body)+1, body), "too short a length": message(len(body)-1, body),
		"two, and the first one's length": message(len(body), body+"10=000|"+string(one)), "a negative length": message(-1, body), "a huge length": message(math.MaxInt, body),
		"no length": []byte("8=FIX.4.4\x019=\x0110=123\x01"), "another protocol": []byte("8=FAX.4.4\x019=0\x0110=123\x01"),
	} {
		if v := l.check(b, 0); v != notOne {
			t.Errorf("%s: %s", name, verdictNames[v])
		}
	}
	if l.credit != credit {
		t.Errorf("what was refused has cost %d", credit-l.credit)
	}
	if n := testing.AllocsPerRun(100, func() { l.check(one, 0) }); n != 0 {
		t.Errorf("a check allocates %v times", n)
	}
}
