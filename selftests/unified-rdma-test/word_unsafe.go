package main

import "unsafe"

// wordAtEnd is the aligned word that has the last byte of b, and by how many bits to shift
// it to see that byte. Slots begin at multiples of 64 bytes and are as long, so the whole word is
// the slot's. The device writes it; it is read atomically, to be read at all. Processors
// that unifiedd runs on are little-endian.
func wordAtEnd(b []byte) (*uint32, uint) {
	p := unsafe.Pointer(&b[len(b)-1])
	at := uintptr(p) % 4
	return (*uint32)(unsafe.Add(p, -int(at))), uint(at) * 8
}
