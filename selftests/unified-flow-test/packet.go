package main

import (
	"errors"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// payload returns the payload of a UDP datagram in an Ethernet packet.
func payload(packet []byte) ([]byte, error) {
	p := gopacket.NewPacket(packet, layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	u, ok := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok {
		return nil, errors.New("a packet is not of UDP")
	}
	return u.Payload, nil
}
