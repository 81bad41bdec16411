package measure

// counter reads the processor's time stamp counter, which on processors of the last fifteen
// years goes on evenly and is the same on all of a machine.
func counter() uint64
