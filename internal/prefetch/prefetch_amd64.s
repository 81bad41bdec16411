#include "textflag.h"

// func Begin(p *byte)
TEXT ·Begin(SB), NOSPLIT, $0-8
	MOVQ       p+0(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	PREFETCHT0 128(AX)
	RET

// func Span(p *byte, n uint32)
TEXT ·Span(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), AX
	MOVL n+8(FP), CX
	ADDQ AX, CX
	ANDQ $~63, AX
	JMP  check

line:
	PREFETCHT0 (AX)
	ADDQ       $64, AX

check:
	CMPQ AX, CX
	JCS  line
	RET
