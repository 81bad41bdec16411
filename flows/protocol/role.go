package protocol

// Role is what a connection is for.
type Role uint8

const (
	RoleAppend Role = 1 // messages from a sender, who dials, to a receiver
	RoleBlocks Role = 2 // requests from a client, who dials, to a server
)

func (r Role) String() string {
	switch r {
	case RoleAppend:
		return "append"
	case RoleBlocks:
		return "blocks"
	}
	return "unknown"
}
