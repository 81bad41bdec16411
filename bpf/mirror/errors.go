package mirror

import "errors"

// Errors that callers match with errors.Is.
var (
	// ErrGone says that the interface that was mirrored, or one end of the pair, is no more.
	ErrGone = errors.New("the interface is gone")
	// errNotEthernet says that packets of an interface have no Ethernet header.
	errNotEthernet = errors.New("its packets have no Ethernet header")
	// errDetached means that somebody detached the program that copies.
	errDetached = errors.New("the program that copies was taken off")
)
