package harness

import (
	"encoding/binary"
	"math/bits"
)

// Fill writes the contents of message number n: words that depend on the seed, the number and their
// place. No part of a message equals a part of another.
func Fill(b []byte, seed, n uint64) {
	at := start(seed, n)
	for len(b) >= 8 {
		at += step
		binary.LittleEndian.PutUint64(b, mix(at))
		b = b[8:]
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], mix(at+step))
	copy(b, last[:])
}

// Differs returns the place of the first byte that differs from the contents that Fill writes, or
// -1.
func Differs(b []byte, seed, n uint64) int {
	at, from := start(seed, n), 0
	for ; len(b)-from >= 8; from += 8 {
		at += step
		if wrong := binary.LittleEndian.Uint64(b[from:]) ^ mix(at); wrong != 0 {
			return from + bits.TrailingZeros64(wrong)/8
		}
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], mix(at+step))
	for i, v := range b[from:] {
		if v != last[i] {
			return from + i
		}
	}
	return -1
}

const step = 0x9e3779b97f4a7c15

func start(seed, n uint64) uint64 { return mix(seed*step + n) }

// mix is the finalizer of splitmix64 (G. Steele, D. Lea, C. Flood, "Fast splittable
// pseudorandom number generators", 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
