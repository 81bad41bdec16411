package protocol

import "fmt"

// Durability is what a receiver's acknowledgement means.
type Durability uint8

const (
	Received Durability = 1 // the message is in the receiver's memory
	Written  Durability = 2 // the disk has taken it; a power cut may lose it
	Durable  Durability = 3 // it is on stable storage
)

var durabilities = [...]string{"", "received", "written", "durable"}

func (d Durability) String() string {
	if d.known() {
		return durabilities[d]
	}
	return "unknown"
}

func (d Durability) known() bool { return d >= Received && d <= Durable }

// ParseDurability is String's reverse.
func ParseDurability(s string) (Durability, error) {
	for d := Received; d <= Durable; d++ {
		if s == durabilities[d] {
			return d, nil
		}
	}
	return 0, fmt.Errorf("durability %q is none of received, written and durable", s)
}
