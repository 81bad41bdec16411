package wire

import (
	"fmt"
	"time"
)

// PSN is a packet sequence number: 24 bits, counted in a circle. Comparisons hold for numbers
// less than 1<<23 apart, which the window of a queue pair never exceeds. IBTA
// specification, volume 1, 9.7.1.
type PSN uint32

// MakePSN returns the lower 24 bits of v.
func MakePSN(v uint32) PSN { return PSN(v & mask24) }

// Add returns the number n packets ahead, or back if n is negative.
func (p PSN) Add(n int) PSN { return PSN(uint32(int64(p)+int64(n)) & mask24) }

// Distance returns by how many packets p is ahead of q, from -1<<23 to 1<<23-1; it is negative if
// p is before q.
func (p PSN) Distance(q PSN) int { return int(int32(uint32(p-q)<<8) >> 8) }

// Before reports whether p is before q.
func (p PSN) Before(q PSN) bool { return p.Distance(q) < 0 }

// After reports whether p is ahead of q.
func (p PSN) After(q PSN) bool { return p.Distance(q) > 0 }

// Syndrome is the first byte of an AETH: the outcome of the request. Bits 7 to 5 are the class.
// IBTA specification, volume 1, 9.7.5.1.2.
type Syndrome uint8

const (
	classMask Syndrome = 0xe0
	classACK  Syndrome = 0x00
	classRNR  Syndrome = 0x20
	classNAK  Syndrome = 0x60
	valueMask Syndrome = 0x1f

	// noCredits is the code of a responder that does not keep end-to-end credits (table 44).
	noCredits = 31

	// ACK is an acknowledgement that does not limit the sender's messages: end-to-end credits
	// are not supported.
	ACK Syndrome = classACK | noCredits

	NAKSequence         = classNAK // a packet is missing: its PSN is the NAK's
	NAKInvalidRequest   = classNAK | 1
	NAKRemoteAccess     = classNAK | 2
	NAKRemoteOperation  = classNAK | 3
	NAKInvalidRDRequest = classNAK | 4
)

// RNRNAK returns the negative acknowledgement that asks the requester to try again after
// RNRDelay(timer).
func RNRNAK(timer uint8) Syndrome { return classRNR | Syndrome(timer)&valueMask }

// IsACK reports whether it is a positive acknowledgement.
func (s Syndrome) IsACK() bool { return s&classMask == classACK }

// IsRNR reports whether the receiver is not ready; Value is the timer code.
func (s Syndrome) IsRNR() bool { return s&classMask == classRNR }

// IsNAK reports whether it is a NAK, known or not, other than an RNR NAK.
func (s Syndrome) IsNAK() bool { return s&classMask == classNAK }

// Value returns the lower five bits: a code for end-to-end credits, a timer code for RNRDelay, or
// the NAK's.
func (s Syndrome) Value() uint8 { return uint8(s & valueMask) }

var nakNames = [...]string{"NAK_SEQUENCE", "NAK_INVALID_REQUEST", "NAK_REMOTE_ACCESS", "NAK_REMOTE_OPERATION", "NAK_INVALID_RD_REQUEST"}

func (s Syndrome) String() string {
	switch {
	case s.IsACK():
		return "ACK"
	case s.IsRNR():
		return fmt.Sprintf("RNR_NAK(%v)", RNRDelay(s.Value()))
	case s.IsNAK() && int(s.Value()) < len(nakNames):
		return nakNames[s.Value()]
	}
	return fmt.Sprintf("syndrome 0x%02x", uint8(s))
}

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
