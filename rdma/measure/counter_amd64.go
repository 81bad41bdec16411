package measure

// counter reads the processor's time stamp counter. On processors of the last fifteen years it has
// a constant rate and is the same on all processors of a machine.
func counter() uint64
