package rdma

import (
	"fmt"
	"strings"
)

// Transport is the service a queue pair gives: enum ibv_qp_type in
// infiniband/verbs.h, with its numbers.
type Transport uint32

const (
	// RC is reliable and connected: messages arrive once, in order, or the queue
	// pair fails.
	RC Transport = 2
	// UC is connected: a message that loses a packet is lost whole, without a word.
	UC Transport = 3
	// UD is datagrams of one packet to any peer, which may be lost.
	UD Transport = 4
)

var transportNames = map[Transport]string{RC: "RC", UC: "UC", UD: "UD"}

func (t Transport) String() string {
	if s, ok := transportNames[t]; ok {
		return s
	}
	return fmt.Sprintf("transport %d", uint32(t))
}

// ParseTransport reads RC, UC or UD, in capitals or not.
func ParseTransport(s string) (Transport, error) {
	for t, name := range transportNames {
		if strings.EqualFold(s, name) {
			return t, nil
		}
	}
	return 0, fmt.Errorf("transport %q: it must be RC, UC or UD", s)
}

// Allows reports whether a queue pair of the transport takes the operation. IBTA
// specification, volume 1, table 35; ibv_post_send(3).
func (t Transport) Allows(op Op) bool {
	switch op {
	case Send, SendImmediate:
		return t == RC || t == UC || t == UD
	case Write, WriteImmediate:
		return t == RC || t == UC
	case Read, CompareSwap, FetchAdd, SendInvalidate:
		return t == RC
	case LocalInvalidate:
		return t == RC || t == UC
	}
	return false
}

// MarshalText is String, for flags and JSON.
func (t Transport) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is ParseTransport.
func (t *Transport) UnmarshalText(text []byte) (err error) {
	*t, err = ParseTransport(string(text))
	return err
}
