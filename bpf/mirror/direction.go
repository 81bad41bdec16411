package mirror

// Direction says which packets of an interface are copied.
type Direction uint8

// The directions. A packet's is also the queue of the pair on which its copy arrives.
const (
	Ingress Direction = iota // packets that arrive
	Egress                   // packets that the host sends
	directions
)

// String returns the word for the direction.
func (d Direction) String() string {
	if d == Ingress {
		return "ingress"
	}
	return "egress"
}
