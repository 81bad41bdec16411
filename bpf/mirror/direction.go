package mirror

// Direction is which packets of an interface are copied.
type Direction uint8

// The directions. A packet's is also the queue of the pair on which its copy arrives.
const (
	Ingress Direction = iota // what arrives
	Egress                   // what the host sends
	directions
)

// String is the word for the direction.
func (d Direction) String() string {
	if d == Ingress {
		return "ingress"
	}
	return "egress"
}
