package wire

import "golang.org/x/sys/cpu"

// folds reports whether the processor has the instructions of carryless.
var folds = cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSSE3 && cpu.X86.HasSSE41

// carryless takes n bytes from p on by the processor's carry-less multiplication. In the first masked bytes, a multiple of 16 and at most
// n, bits that are set in ones count as ones.
//
//go:noescape
func carryless(r uint32, ones *byte, masked int, p *byte, n int) uint32
