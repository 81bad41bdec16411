package rule

import "github.com/unifiedd/unifiedd/flows/config"

// Constant returns the bytes of parts that are always the same.
func Constant(parts []config.OrderPart) (b []byte) {
	for i := range parts {
		b = append(append(b, parts[i].Text...), parts[i].Hex...)
	}
	return b
}

// Answer compares the beginning of a stream with conditions, of which all must be met. It has no rule, and keeps as many
// bytes as the conditions are about.
type Answer struct {
	rule rule
	b    []byte
}

// NewAnswer makes an Answer of at least one condition.
func NewAnswer(conditions []config.Condition) *Answer {
	a := &Answer{}
	end := 0
	for i := range conditions {
		a.rule.conditions = append(a.rule.conditions, newCondition(&conditions[i]))
		end = max(end, conditions[i].End())
	}
	a.b = make([]byte, 0, end)
	return a
}

// Reset begins with the next stream.
func (a *Answer) Reset() { a.b = a.b[:0] }

// Add adds bytes of the stream. Short means that more must come.
func (a *Answer) Add(b []byte) Outcome {
	a.b = append(a.b, b[:min(len(b), cap(a.b)-len(a.b))]...)
	return a.rule.match(a.b)
}

// Bytes returns what has been added, as far as the conditions are about it.
func (a *Answer) Bytes() []byte { return a.b }
