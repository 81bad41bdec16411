package wire

// fence keeps accesses before and after it in order, as others see them.
//
//go:noescape
func fence()
