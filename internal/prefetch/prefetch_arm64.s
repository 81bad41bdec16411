#include "textflag.h"

// func Begin(p *byte)
TEXT ·Begin(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	PRFM 64(R0), PLDL1KEEP
	PRFM 128(R0), PLDL1KEEP
	RET

// func Span(p *byte, n uint32)
TEXT ·Span(SB), NOSPLIT, $0-12
	MOVD  p+0(FP), R0
	MOVWU n+8(FP), R1
	ADD   R0, R1, R1
	AND   $~63, R0, R0
	B     check

line:
	PRFM (R0), PLDL1KEEP
	ADD  $64, R0

check:
	CMP R1, R0
	BLO line
	RET
