package mirror

import "errors"

// Errors that callers match with errors.Is.
var (
	// ErrGone means that the mirrored interface, or one end of the pair, no longer exists.
	ErrGone = errors.New("the interface is gone")
	// errNotEthernet means that packets of an interface have no Ethernet header.
	errNotEthernet = errors.New("its packets have no Ethernet header")
	// errDetached means that another process detached the program that copies.
	errDetached = errors.New("the program that copies was taken off")
)
