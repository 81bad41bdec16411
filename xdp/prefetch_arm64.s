#include "textflag.h"

// func prefetchLines(b *byte)
TEXT ·prefetchLines(SB), NOSPLIT, $0-8
	MOVD b+0(FP), R0
	PRFM (R0), PLDL1KEEP
	PRFM 64(R0), PLDL1KEEP
	PRFM 128(R0), PLDL1KEEP
	RET
