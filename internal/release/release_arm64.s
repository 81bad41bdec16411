//go:build !race

#include "textflag.h"

// func Store32(word *atomic.Uint32, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVD  word+0(FP), R0
	MOVWU v+8(FP), R1
	STLRW R1, (R0)
	RET
