package wire

// fence keeps accesses before and after it in order, as others see them. This processor keeps the order of loads,
// and that of stores.
func fence() {}
