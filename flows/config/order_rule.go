package config

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// OrderRule makes an order of a message, if the message is as all of When says.
type OrderRule struct {
	Name  string
	When  []Condition
	Order []OrderPart // one behind the other
}

// Condition is about bytes of a message from At on. They are those of Is, or those of Hex in the bits that Mask has, or a
// number of Bits from Min to Max.
type Condition struct {
	At       int
	Is       string
	Hex      Bytes
	Mask     Bytes // as long as Hex; empty: all bits
	Bits     int   // 8, 16, 32 or 64; 0: no number
	Order    ByteOrder
	Min, Max uint64
}

// OrderPart is a part of an order: a text, bytes, a copy of Bytes bytes of the message from *Copy on, or the counter in Bytes
// bytes.
type OrderPart struct {
	Text    string
	Hex     Bytes
	Copy    *int
	Reverse bool // the bytes of a copy, which changes the order of the bytes of a number
	Counter CounterForm
	Bytes   int
}

// Bytes are bytes that are written as hexadecimal digits.
type Bytes []byte

// String writes the bytes as they are configured.
func (b Bytes) String() string { return hex.EncodeToString(b) }

// CounterForm is how an order has the counter of orders.
type CounterForm string

// The forms of a counter.
const (
	CounterDecimal CounterForm = "decimal" // digits, with zeros in front
	CounterBig     CounterForm = "big"     // a number, big endian
	CounterLittle  CounterForm = "little"  // little endian
)

var allCounterForms = []CounterForm{CounterDecimal, CounterBig, CounterLittle}

// Login is what begins a session on a connection.
type Login struct {
	Send   []OrderPart // texts and bytes
	Answer []Condition // about what the exchange sends first; none: orders leave at once
}

// Heartbeat is what is sent when nothing has left for a time.
type Heartbeat struct {
	Every time.Duration
	Send  []OrderPart // texts and bytes
}

// Bounds of rules.
const (
	maxOrderRules = 64
	maxConditions = 16
	maxOrderParts = 64
	maxDigits     = 20   // of a counter
	maxAnswer     = 1024 // bytes of the answer to a login that conditions are about
	minBeat       = 10 * time.Millisecond
	maxBeat       = time.Hour
)

// parseHex reads hexadecimal digits, which may have spaces between them.
func parseHex(s string) (Bytes, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		return nil, wrong("write pairs of hexadecimal digits, such as \"00 2f\"", "%s are no bytes in hexadecimal digits", quote(s))
	}
	return b, nil
}

// orderRules reads the rules of a flow.
func (d *decoder) orderRules(path string, n *yaml.Node, to *[]OrderRule) {
	*to = nil
	d.list(path, n, func(path string, n *yaml.Node) {
		var r OrderRule
		d.mapping(path, n, fields{
			"name": set(d, &r.Name, parseText),
			"when": func(path string, n *yaml.Node) {
				d.list(path, n, func(path string, n *yaml.Node) { r.When = append(r.When, d.orderCondition(path, n)) })
			},
			"order": func(path string, n *yaml.Node) {
				d.list(path, n, func(path string, n *yaml.Node) { r.Order = append(r.Order, d.orderPart(path, n)) })
			},
		})
		*to = append(*to, r)
	})
}

func (d *decoder) orderCondition(path string, n *yaml.Node) Condition {
	c := Condition{Order: BigEndian, Max: math.MaxUint64}
	d.mapping(path, n, fields{
		"at":    set(d, &c.At, parseInt),
		"is":    set(d, &c.Is, parseText),
		"hex":   set(d, &c.Hex, parseHex),
		"mask":  set(d, &c.Mask, parseHex),
		"bits":  set(d, &c.Bits, parseInt),
		"order": set(d, &c.Order, oneOf(allByteOrders)),
		"min":   set(d, &c.Min, parseUnsigned),
		"max":   set(d, &c.Max, parseUnsigned),
	})
	return c
}

func (d *decoder) orderPart(path string, n *yaml.Node) (p OrderPart) {
	d.mapping(path, n, fields{
		"text":    set(d, &p.Text, parseText),
		"hex":     set(d, &p.Hex, parseHex),
		"copy":    setOptional(d, &p.Copy, parseInt),
		"reverse": set(d, &p.Reverse, parseBool),
		"counter": set(d, &p.Counter, oneOf(allCounterForms)),
		"bytes":   set(d, &p.Bytes, parseInt),
	})
	return p
}

// login reads what begins a session.
func (d *decoder) login(path string, n *yaml.Node, o *Order) {
	o.Login = &Login{}
	d.mapping(path, n, fields{
		"send": func(path string, n *yaml.Node) {
			d.list(path, n, func(path string, n *yaml.Node) { o.Login.Send = append(o.Login.Send, d.orderPart(path, n)) })
		},
		"answer": func(path string, n *yaml.Node) {
			d.list(path, n, func(path string, n *yaml.Node) { o.Login.Answer = append(o.Login.Answer, d.orderCondition(path, n)) })
		},
	})
}

// heartbeat reads what is sent when no order is.
func (d *decoder) heartbeat(path string, n *yaml.Node, o *Order) {
	o.Heartbeat = &Heartbeat{}
	d.mapping(path, n, fields{
		"every": set(d, &o.Heartbeat.Every, parseDuration),
		"send": func(path string, n *yaml.Node) {
			d.list(path, n, func(path string, n *yaml.Node) { o.Heartbeat.Send = append(o.Heartbeat.Send, d.orderPart(path, n)) })
		},
	})
}

// Len returns how many bytes of an order the part is.
func (p *OrderPart) Len() int {
	if p.Copy != nil || p.Counter != "" {
		return p.Bytes
	}
	return len(p.Text) + len(p.Hex)
}

// Len returns the length of the orders of a rule in bytes.
func (r *OrderRule) Len() (n int) {
	for i := range r.Order {
		n += r.Order[i].Len()
	}
	return n
}

// orderSource checks what orders are made of: a program's messages, or packets by rules.
func (v *validator) orderSource(at string, f *Flow) {
	o := f.To.Order
	if f.Kind() == KindNetworkOrder {
		v.check(len(o.Rules) > 0, v.first(join(at, "rules"), at), "rules are needed, which make orders of packets")
		v.check(!o.Replies, join(at, "replies"), "is for the program that sends orders, and here rules make them")
		v.orderRules(join(at, "rules"), o)
		v.session(at, o)
		return
	}
	for _, key := range []string{"rules", "counter", "login", "heartbeat"} {
		if _, there := v.places[join(at, key)]; there {
			v.refuse(join(at, key), wrong("remove it, or say from: {interface: …}", "has a meaning only for packets of a network interface: the program makes the orders itself"))
		}
	}
}

// session checks what is sent on a connection besides orders.
func (v *validator) session(at string, o *Order) {
	if path := join(at, "login"); o.Login != nil && !v.explained(path) {
		v.check(o.Given == "", path, "has a meaning only with connect: program %s logs in before it gives a connection", quote(o.Given))
		v.constant(path, o.Login.Send, &o.Limits)
		for i := range o.Login.Answer {
			c, one := &o.Login.Answer[i], fmt.Sprintf("%s.answer[%d]", path, i)
			v.orderCondition(one, c)
			v.check(c.End() <= maxAnswer, v.first(join(one, "at"), one), "is about bytes behind the first %d of the answer", maxAnswer)
		}
	}
	if path := join(at, "heartbeat"); o.Heartbeat != nil && !v.explained(path) {
		v.constant(path, o.Heartbeat.Send, &o.Limits)
		if every := join(path, "every"); !v.explained(every) {
			v.check(o.Heartbeat.Every >= minBeat && o.Heartbeat.Every <= maxBeat, v.first(every, path), "%s is not a time from %s to %s", o.Heartbeat.Every, minBeat, maxBeat)
		}
	}
}

// constant checks what is sent always alike. The limits are for it, too.
func (v *validator) constant(path string, parts []OrderPart, l *OrderLimits) {
	at := v.first(join(path, "send"), path)
	v.check(len(parts) > 0, at, "send is needed: the parts of what is sent, of which each is a text or hex")
	v.check(len(parts) <= maxOrderParts, at, "%d parts are too many; at most %d are possible", len(parts), maxOrderParts)
	n := 0
	for i := range parts {
		p, one := &parts[i], fmt.Sprintf("%s.send[%d]", path, i)
		n += p.Len()
		if (p.Text == "") == (len(p.Hex) == 0) && !v.explained(one) || p.Copy != nil || p.Counter != "" || p.Bytes != 0 || p.Reverse {
			v.refuse(one, wrong("say text or hex", "is always the same, and so a text or bytes"))
		}
	}
	v.check(n <= maxOrder, at, "%d bytes do not fit a segment: at most %d are possible", n, maxOrder)
	v.check(l.Size == 0 || Size(n) <= l.Size, at, "is %d bytes long, and limits.size lets none of more than %s leave", n, l.Size)
	v.pricePlace(at, n, l)
}

// pricePlace checks that the price is not behind the end of what has n bytes, if all orders have one.
func (v *validator) pricePlace(at string, n int, l *OrderLimits) {
	if b := l.Price; b != nil && b.Is == "" && n > 0 && n < b.Offset+b.Bits/8 && !v.explained(at) {
		v.refuse(at, wrong("say with limits.price.at and is which ones have a price", "is %d bytes long, and the price of limits.price ends behind byte %d: it would never leave", n, b.Offset+b.Bits/8))
	}
}

// End returns where the bytes end that the condition is about.
func (c *Condition) End() int { return c.At + max(len(c.Is), len(c.Hex), c.Bits/8) }

// orderRules checks the rules of a flow.
func (v *validator) orderRules(at string, o *Order) {
	v.check(len(o.Rules) <= maxOrderRules, at, "%d rules are too many; at most %d are possible", len(o.Rules), maxOrderRules)
	names := newTaken[string](v, "rule")
	for i := range o.Rules {
		r, path := &o.Rules[i], fmt.Sprintf("%s[%d]", at, i)
		v.name(join(path, "name"), r.Name)
		names.take(join(path, "name"), r.Name)
		v.check(len(r.When) > 0, v.first(join(path, "when"), path), "needs at least one condition under when: without any, every message would be an order")
		v.check(len(r.When) <= maxConditions, join(path, "when"), "%d conditions are too many; at most %d are possible", len(r.When), maxConditions)
		for n := range r.When {
			v.orderCondition(fmt.Sprintf("%s.when[%d]", path, n), &r.When[n])
		}
		v.ruleOrder(path, r, o)
	}
}

// orderCondition checks a condition.
func (v *validator) orderCondition(path string, c *Condition) {
	if v.explained(path) {
		return
	}
	ways := 0
	for _, is := range []bool{c.Is != "", len(c.Hex) > 0, c.Bits != 0} {
		if is {
			ways++
		}
	}
	v.check(ways == 1, path, "needs one of is, hex and bits: a text, bytes, or a number with min, max or both")
	v.check(within(c.At, 0, maxOrderOffset), join(path, "at"), "%d is not from 0 to %d", c.At, maxOrderOffset)
	v.check(len(c.Mask) == 0 || len(c.Mask) == len(c.Hex), join(path, "mask"), "has %d bytes, and hex has %d", len(c.Mask), len(c.Hex))
	for i := range c.Mask[:min(len(c.Mask), len(c.Hex))] {
		if c.Hex[i]&^c.Mask[i] != 0 {
			v.refuse(join(path, "hex"), wrong("clear those bits, or set them in mask", "byte %d has bits that mask leaves out, so no message would fit", i))
			break
		}
	}
	_, hasMin := v.places[join(path, "min")]
	_, hasMax := v.places[join(path, "max")]
	if c.Bits == 0 {
		v.check(!hasMin && !hasMax, v.first(join(path, "min"), join(path, "max"), path), "has a meaning only with bits")
		return
	}
	v.check(c.Bits == 8 || c.Bits == 16 || c.Bits == 32 || c.Bits == 64, join(path, "bits"), "%d is not 8, 16, 32 or 64", c.Bits)
	v.check(hasMin || hasMax || c.Min > 0 || c.Max < math.MaxUint64, path, "min, max or both are needed")
	v.check(c.Min <= c.Max, v.first(join(path, "min"), path), "%d is more than max, which is %d", c.Min, c.Max)
	v.check(c.Bits >= 64 || c.Bits < 0 || c.Min>>c.Bits == 0, join(path, "min"), "no number of %d bits reaches %d", c.Bits, c.Min)
}

// ruleOrder checks the parts of a rule's order.
func (v *validator) ruleOrder(path string, r *OrderRule, o *Order) {
	at := v.first(join(path, "order"), path)
	v.check(len(r.Order) > 0, at, "the parts of the rule's order are needed under order")
	v.check(len(r.Order) <= maxOrderParts, at, "%d parts are too many; at most %d are possible", len(r.Order), maxOrderParts)
	for i := range r.Order {
		v.orderPart(fmt.Sprintf("%s.order[%d]", path, i), &r.Order[i], o)
	}
	n := r.Len()
	v.check(n <= maxOrder, at, "an order of %d bytes does not fit a segment: at most %d are possible", n, maxOrder)
	v.check(o.Limits.Size == 0 || Size(n) <= o.Limits.Size, at, "the order has %d bytes, and limits.size lets none of more than %s leave", n, o.Limits.Size)
	v.pricePlace(at, n, &o.Limits)
}

// orderPart checks a part of an order.
func (v *validator) orderPart(path string, p *OrderPart, o *Order) {
	if v.explained(path) {
		return
	}
	ways := 0
	for _, is := range []bool{p.Text != "", len(p.Hex) > 0, p.Copy != nil, p.Counter != ""} {
		if is {
			ways++
		}
	}
	bytes := v.first(join(path, "bytes"), path)
	switch {
	case ways != 1:
		v.refuse(path, wrong("say text, hex, copy or counter", "needs exactly one of these: a text, bytes, a copy of bytes of the message, or the counter"))
	case p.Copy != nil:
		v.check(within(*p.Copy, 0, maxOrderOffset), join(path, "copy"), "%d is not from 0 to %d", *p.Copy, maxOrderOffset)
		v.check(within(p.Bytes, 1, maxOrder), bytes, "%d bytes cannot be copied: say bytes, from 1 to %d", p.Bytes, maxOrder)
	case p.Counter == CounterDecimal:
		v.check(within(p.Bytes, 1, maxDigits), bytes, "%d digits are not possible: say bytes, from 1 to %d", p.Bytes, maxDigits)
		v.check(p.Bytes >= digits(o.Counter), v.first(bytes, path), "the counter begins with %d, which has more than %d digits", o.Counter, p.Bytes)
	case p.Counter != "":
		v.check(within(p.Bytes, 1, 8), bytes, "a number of %d bytes is not possible: say bytes, from 1 to 8", p.Bytes)
		v.check(p.Bytes < 1 || p.Bytes > 7 || o.Counter>>(8*p.Bytes) == 0, v.first(bytes, path), "the counter begins with %d, which is more than %d bytes have", o.Counter, p.Bytes)
	default:
		v.check(p.Bytes == 0, bytes, "has a meaning only with copy and counter")
	}
	v.check(!p.Reverse || p.Copy != nil, join(path, "reverse"), "has a meaning only with copy")
}

// digits returns how many decimal digits a number has.
func digits(n uint64) int { return len(fmt.Sprint(n)) }
