#include "textflag.h"

// Constants of the reflected polynomial 0xedb88320: Gopal and others, "Fast CRC Computation for Generic Polynomials
// Using PCLMULQDQ Instruction", Intel 2009.
DATA by16<>+0(SB)/8, $0x1751997d0
DATA by16<>+8(SB)/8, $0x0ccaa009e
GLOBL by16<>(SB), RODATA, $16
DATA by4<>+0(SB)/8, $0x163cd6124
GLOBL by4<>(SB), RODATA, $8
DATA barrett<>+0(SB)/8, $0x1db710641
DATA barrett<>+8(SB)/8, $0x1f7011641
GLOBL barrett<>(SB), RODATA, $16

// shifts has the indices for PSHUFB that move bytes to the end of a register and to its front: those from t on, and from 16+t on.
DATA shifts<>+0(SB)/8, $0x8080808080808080
DATA shifts<>+8(SB)/8, $0x8080808080808080
DATA shifts<>+16(SB)/8, $0x0706050403020100
DATA shifts<>+24(SB)/8, $0x0f0e0d0c0b0a0908
DATA shifts<>+32(SB)/8, $0x8080808080808080
DATA shifts<>+40(SB)/8, $0x8080808080808080
GLOBL shifts<>(SB), RODATA, $48

// FOLD moves what X0 stands for 16 bytes on.
#define FOLD \
	MOVOA     X0, X3;           \
	PCLMULQDQ $0x00, X5, X0;    \
	PCLMULQDQ $0x11, X5, X3;    \
	PXOR      X3, X0

// func carryless(r uint32, ones *byte, masked int, p *byte, n int) uint32
TEXT ·carryless(SB), NOSPLIT, $0-44
	MOVL  r+0(FP), AX
	MOVQ  ones+8(FP), DI
	MOVQ  masked+16(FP), R8
	MOVQ  p+24(FP), SI
	MOVQ  n+32(FP), CX
	MOVOU by16<>(SB), X5

	// The register goes into the first bytes.
	MOVOU (SI), X0
	MOVOU (DI), X1
	POR   X1, X0
	MOVD  AX, X2
	PXOR  X2, X0
	SUBQ  $16, CX

	// The blocks in which some bits become ones.
masking:
	SUBQ  $16, R8
	JLE   blocks
	ADDQ  $16, SI
	ADDQ  $16, DI
	SUBQ  $16, CX
	MOVOU (SI), X1
	MOVOU (DI), X2
	POR   X2, X1
	FOLD
	PXOR  X1, X0
	JMP   masking

	// Those that are taken as they are.
blocks:
	CMPQ  CX, $16
	JLT   tail
	ADDQ  $16, SI
	SUBQ  $16, CX
	MOVOU (SI), X1
	FOLD
	PXOR  X1, X0
	JMP   blocks

	// Up to 15 bytes more: what X0 stands for and they are 16+t bytes, of which the first t are folded over the others.
tail:
	TESTQ   CX, CX
	JZ      finish
	LEAQ    shifts<>(SB), R9
	MOVOU   (R9)(CX*1), X6   // first t bytes to the end
	MOVOU   16(R9)(CX*1), X7 // the others to the front
	MOVOU   (SI)(CX*1), X1   // the last 16 bytes of the packet
	PXOR    X4, X4
	PCMPGTB X6, X4           // all but the last t of them
	PANDN   X1, X4
	MOVOA   X0, X1
	PSHUFB  X7, X1
	PXOR    X1, X4
	PSHUFB  X6, X0
	FOLD
	PXOR    X4, X0

	// 16 bytes to 8, to 4 and by Barrett's reduction to the register.
finish:
	PCMPEQB   X3, X3
	PSRLQ     $32, X3
	PCLMULQDQ $0x01, X0, X5
	PSRLDQ    $8, X0
	PXOR      X5, X0
	MOVQ      by4<>(SB), X5
	MOVOA     X0, X2
	PSRLDQ    $4, X2
	PAND      X3, X0
	PCLMULQDQ $0x00, X5, X0
	PXOR      X2, X0
	MOVOU     barrett<>(SB), X5
	MOVOA     X0, X2
	PAND      X3, X0
	PCLMULQDQ $0x10, X5, X0
	PAND      X3, X0
	PCLMULQDQ $0x00, X5, X0
	PXOR      X2, X0
	PEXTRD    $1, X0, AX
	MOVL      AX, ret+40(FP)
	RET
