#include "textflag.h"

// func prefetchLines(b *byte)
TEXT ·prefetchLines(SB), NOSPLIT, $0-8
	MOVQ        b+0(FP), AX
	PREFETCHT0  (AX)
	PREFETCHT0  64(AX)
	PREFETCHT0  128(AX)
	RET
