package mirror

import "errors"

// Errors that callers match with errors.Is.
var (
	// ErrGone says that the interface that was mirrored, or one end of the pair, is no more.
	ErrGone = errors.New("the interface is gone")
	// ErrNotEthernet says that packets of an interface have no Ethernet header.
	ErrNotEthernet = errors.New("its packets have no Ethernet header")
	// ErrDetached says that somebody took the program that copies off the interface.
	ErrDetached = errors.New("the program that copies was taken off")
)
