package rdma

import "strings"

// Access is rights to registered memory, and what a queue pair lets its peer do: enum
// ibv_access_flags. A peer can do what both allow.
type Access uint32

const (
	LocalWrite   Access = 1 << 0 // the device may write it: receives, READ data
	RemoteWrite  Access = 1 << 1
	RemoteRead   Access = 1 << 2
	RemoteAtomic Access = 1 << 3
	BindWindows  Access = 1 << 4 // memory windows may be bound to it

	// Remote is every right of a peer's.
	Remote = RemoteWrite | RemoteRead | RemoteAtomic

	// EveryAccess is all there is.
	EveryAccess = LocalWrite | Remote | BindWindows
)

var accessNames = []string{"local write", "remote write", "remote read", "remote atomic", "window bind"}

func (a Access) String() string {
	var names []string
	for bit, name := range accessNames {
		if a&(1<<bit) != 0 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "local read"
	}
	return strings.Join(names, ", ")
}
