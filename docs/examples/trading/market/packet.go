package market

import "errors"

// Payload returns the payload of a UDP packet over IPv4 in an Ethernet frame.
func Payload(frame []byte) ([]byte, error) {
	const ethernet, udp = 14, 8
	if len(frame) < ethernet+20+udp || frame[12] != 0x08 || frame[13] != 0x00 || frame[ethernet]>>4 != 4 {
		return nil, errNotUDP
	}
	header := int(frame[ethernet]&15) * 4
	if header < 20 || len(frame) < ethernet+header+udp || frame[ethernet+9] != 17 {
		return nil, errNotUDP
	}
	datagram := frame[ethernet+header:]
	length := int(datagram[4])<<8 | int(datagram[5])
	if length < udp || length > len(datagram) {
		return nil, errNotUDP
	}
	return datagram[udp:length], nil
}

var errNotUDP = errors.New("this is no whole UDP packet over IPv4")
