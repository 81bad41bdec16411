package config

import (
	"fmt"
	"math"
	"time"

	"pgregory.net/rapid"
)

func drawOrder(t *rapid.T, name string) *Order {
	o := newOrder()
	o.Connect, o.Interface = rapid.SampledFrom([]string{"10.0.0.9:1", "[2001:db8::9]:65535"}).Draw(t, "connect"), name
	o.Queue, o.Ring = rapid.IntRange(0, maxQueue).Draw(t, "transmit queue"), MinRing<<rapid.IntRange(0, 4).Draw(t, "ring")
	o.ZeroCopy, o.SendTimes = rapid.SampledFrom(allZeroCopies).Draw(t, "zero copy"), rapid.Bool().Draw(t, "send times")
	o.Retry = time.Duration(rapid.Int64Range(1, int64(maxRetry)).Draw(t, "retry"))
	l := &o.Limits
	l.Rate, l.Size = rapid.IntRange(0, maxOrderRate).Draw(t, "rate"), Size(rapid.IntRange(0, maxOrder).Draw(t, "size"))
	if l.Rate > 0 {
		l.Burst = rapid.IntRange(0, maxOrderRate).Draw(t, "burst")
	}
	if rapid.Bool().Draw(t, "band") {
		b := &PriceBand{Offset: rapid.IntRange(0, maxOrderOffset).Draw(t, "offset"), Bits: rapid.SampledFrom([]int{32, 64}).Draw(t, "bits")}
		b.Max = rapid.Uint64Range(0, math.MaxUint64-1).Draw(t, "max") // a band without bounds is none
		b.Min = rapid.Uint64Range(0, b.Max).Draw(t, "min")
		if b.Is = rapid.SampledFrom([]string{"", "UO"}).Draw(t, "is"); b.Is != "" {
			b.At = rapid.IntRange(0, maxOrderOffset).Draw(t, "at")
		}
		l.Price = b
	}
	return o
}

// drawRules draws the rules of a flow, and its session.
func drawRules(t *rapid.T, o *Order) {
	o.Counter = rapid.Uint64().Draw(t, "counter")
	longest := maxOrder
	if o.Limits.Size > 0 {
		longest = int(o.Limits.Size)
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "rules") {
		r := OrderRule{Name: fmt.Sprintf("rule-%d", i), Order: []OrderPart{{Hex: Bytes{0}}}}
		for range rapid.IntRange(1, 3).Draw(t, "conditions") {
			r.When = append(r.When, drawCondition(t, maxOrderOffset))
		}
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			if p := drawPart(t, o.Counter); r.Len()+p.Len() <= longest {
				r.Order = append(r.Order, p)
			}
		}
		o.Rules = append(o.Rules, r)
	}
	if o.Limits.Size > 0 {
		o.Limits.Size = max(o.Limits.Size, 6)
	}
	if b := o.Limits.Price; b != nil && b.Is == "" {
		b.Is = "UO" // else all must be long enough
	}
	constant := []OrderPart{{Text: "beat"}, {Hex: Bytes{0, 1}}}
	if rapid.Bool().Draw(t, "login") {
		o.Login = &Login{Send: constant}
		for range rapid.IntRange(0, 2).Draw(t, "answer") {
			o.Login.Answer = append(o.Login.Answer, drawCondition(t, maxAnswer-8))
		}
	}
	if rapid.Bool().Draw(t, "heartbeat") {
		o.Heartbeat = &Heartbeat{Every: time.Duration(rapid.Int64Range(int64(minBeat), int64(maxBeat)).Draw(t, "every")), Send: constant}
	}
}

// drawCondition draws a condition up to an offset.
func drawCondition(t *rapid.T, last int) Condition {
	c := Condition{At: rapid.IntRange(0, last).Draw(t, "at"), Order: BigEndian, Max: math.MaxUint64}
	switch rapid.IntRange(0, 2).Draw(t, "condition") {
	case 0:
		c.Is = rapid.SampledFrom([]string{"A", "UO", "é"}).Draw(t, "is")
	case 1:
		c.Hex = rapid.SampledFrom([]Bytes{{0}, {0x12, 0xff}}).Draw(t, "hex")
		if rapid.Bool().Draw(t, "mask") {
			c.Mask = Bytes{0xff, 0xff}[:len(c.Hex)]
		}
	default:
		c.Bits, c.Order = 8<<rapid.IntRange(0, 3).Draw(t, "bits"), rapid.SampledFrom(allByteOrders).Draw(t, "order")
		c.Min = rapid.Uint64Range(0, (math.MaxUint64-1)>>(64-c.Bits)).Draw(t, "min")
		c.Max = rapid.Uint64Range(c.Min, math.MaxUint64-1).Draw(t, "max") // one of them must be a bound
	}
	return c
}

// drawPart draws a part of an order of a flow whose counter begins with a number.
func drawPart(t *rapid.T, counter uint64) (p OrderPart) {
	switch rapid.IntRange(0, 3).Draw(t, "part") {
	case 0:
		p.Text = rapid.SampledFrom([]string{"x", "FIRM", "日"}).Draw(t, "text")
	case 1:
		p.Hex = Bytes{1, 2, 3}
	case 2:
		p.Copy, p.Bytes = new(rapid.IntRange(0, maxOrderOffset).Draw(t, "copy")), rapid.IntRange(1, 64).Draw(t, "bytes")
		p.Reverse = rapid.Bool().Draw(t, "reverse")
	default:
		p.Counter = rapid.SampledFrom(allCounterForms).Draw(t, "form")
		if p.Bytes = 8; p.Counter == CounterDecimal {
			p.Bytes = rapid.IntRange(digits(counter), maxDigits).Draw(t, "digits")
		}
	}
	return p
}

// rulesDocument adds the rules of a flow, and its session, to a document of the order.
func rulesDocument(o *Order, doc map[string]any) {
	if o.Rules == nil {
		return
	}
	doc["counter"] = o.Counter
	var rules []any
	for _, r := range o.Rules {
		rules = append(rules, map[string]any{"name": r.Name, "when": conditionsDocument(r.When), "order": partsDocument(r.Order)})
	}
	doc["rules"] = rules
	if l := o.Login; l != nil {
		login := map[string]any{"send": partsDocument(l.Send)}
		if l.Answer != nil {
			login["answer"] = conditionsDocument(l.Answer)
		}
		doc["login"] = login
	}
	if o.Heartbeat != nil {
		doc["heartbeat"] = map[string]any{"every": o.Heartbeat.Every.String(), "send": partsDocument(o.Heartbeat.Send)}
	}
}

func conditionsDocument(all []Condition) (docs []any) {
	for _, c := range all {
		doc := map[string]any{"at": c.At}
		switch {
		case c.Is != "":
			doc["is"] = c.Is
		case c.Bits > 0:
			doc["bits"], doc["order"], doc["min"], doc["max"] = c.Bits, string(c.Order), c.Min, c.Max
		default:
			doc["hex"] = c.Hex.String()
			if c.Mask != nil {
				doc["mask"] = c.Mask.String()
			}
		}
		docs = append(docs, doc)
	}
	return docs
}

func partsDocument(all []OrderPart) (docs []any) {
	for _, p := range all {
		doc := map[string]any{}
		switch {
		case p.Text != "":
			doc["text"] = p.Text
		case p.Copy != nil:
			doc["copy"], doc["bytes"], doc["reverse"] = *p.Copy, p.Bytes, p.Reverse
		case p.Counter != "":
			doc["counter"], doc["bytes"] = string(p.Counter), p.Bytes
		default:
			doc["hex"] = p.Hex.String()
		}
		docs = append(docs, doc)
	}
	return docs
}
