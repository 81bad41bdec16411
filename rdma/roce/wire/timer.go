package wire

import "time"

// rnrTable has the waits in units of 10 µs. IBTA specification, volume 1, table 45.
var rnrTable = [32]uint32{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
	3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152}

// RNRDelay returns the shortest time that the requester waits after an RNR NAK with that timer
// code, 0 to 31: 10 µs (code 1) to 655.36 ms (code 0).
func RNRDelay(code uint8) time.Duration {
	return time.Duration(rnrTable[code&uint8(valueMask)]) * 10 * time.Microsecond
}

// AckTimeout returns the shortest time that the requester waits for an answer, for the timeout code
// of a queue pair, 0 to 31: 4.096 µs times two to the power of the code. Code 0 means no limit, and
// the result is 0. IBTA specification, volume 1, 9.7.6.1.3.
func AckTimeout(code uint8) time.Duration {
	if code &= 31; code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << code
}
