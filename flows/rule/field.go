package rule

import "github.com/unifiedd/unifiedd/flows/config"

// field is a part of an order that differs from order to order: the bytes from to to end.
type field struct {
	to, end int
	from    int // in the message; -1: it is the counter
	reverse bool
	form    config.CounterForm
}

// add adds a part to the order of a rule.
func (r *rule) add(p *config.OrderPart) {
	f := field{to: len(r.order), end: len(r.order) + p.Len(), from: -1, reverse: p.Reverse, form: p.Counter}
	switch {
	case p.Copy != nil:
		f.from = *p.Copy
		r.reach = max(r.reach, f.from+p.Bytes)
	case p.Counter == "":
		r.order = append(append(r.order, p.Text...), p.Hex...)
		return
	}
	r.order = append(r.order, make([]byte, p.Bytes)...)
	r.fields = append(r.fields, f)
}

// fill writes the field into an order. The message is long enough.
func (f *field) fill(order, message []byte, counter uint64) {
	b := order[f.to:f.end]
	switch {
	case f.from < 0:
		putCounter(b, counter, f.form)
	case f.reverse:
		from := message[f.from : f.from+len(b)]
		for i := range from {
			b[len(b)-1-i] = from[i]
		}
	default:
		copy(b, message[f.from:])
	}
}

// putCounter writes a number into all of b. Digits and bytes that have no room are left out: the numbers begin with 0
// again.
func putCounter(b []byte, n uint64, form config.CounterForm) {
	switch form {
	case config.CounterDecimal:
		for i := len(b) - 1; i >= 0; i-- {
			b[i] = '0' + byte(n%10)
			n /= 10
		}
	case config.CounterBig:
		for i := len(b) - 1; i >= 0; i-- {
			b[i] = byte(n)
			n >>= 8
		}
	default:
		for i := range b {
			b[i] = byte(n)
			n >>= 8
		}
	}
}
