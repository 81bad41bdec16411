package wire

import "fmt"

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
