package main

import "unsafe"

// wordAtEnd returns the aligned word that contains the last byte of b, and the shift that moves
// that byte to the low bits. Slots begin at multiples of 64 bytes and have such lengths, so the
// whole word belongs to the slot. The device writes the word, so it must be read atomically. All
// processors that unifiedd supports are little-endian.
func wordAtEnd(b []byte) (*uint32, uint) {
	p := unsafe.Pointer(&b[len(b)-1])
	at := uintptr(p) % 4
	return (*uint32)(unsafe.Add(p, -int(at))), uint(at) * 8
}
