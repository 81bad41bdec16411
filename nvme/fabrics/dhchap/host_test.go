package dhchap

import (
	"bytes"
	"crypto/rand"
	"testing"
)

// host is the other side. It follows the rules except for what a test changes.
type host struct {
	t           testing.TB
	host        *Secret // its key
	controller  *Secret // the controller's key, if the host asks for its proof
	transaction uint16
	hash        Hash
	group       Group
	key, public []byte // of the exchange
	c1, c2      []byte
	s1, s2      uint32
}

// negotiation offers hashes and groups.
func (h *host) negotiation(hashes []Hash, groups []Group) []byte {
	b := make([]byte, negotiateLen+descriptorLen)
	le.PutUint16(b[4:], h.transaction)
	d := b[offDescriptor:]
	b[7], d[0], d[2], d[3] = 1, protocolID, byte(len(hashes)), byte(len(groups))
	for i, one := range hashes {
		d[offHashIDs+i] = byte(one)
	}
	for i, one := range groups {
		d[offGroupIDs+i] = byte(one)
	}
	return b
}

// all offers the same hashes and groups as the kernel.
func (h *host) all() []byte {
	return h.negotiation([]Hash{SHA256, SHA384, SHA512}, []Group{Null, FFDHE2048, FFDHE3072, FFDHE4096, FFDHE6144, FFDHE8192})
}

// reply returns the answer to a challenge.
func (h *host) reply(b []byte) []byte {
	h.t.Helper()
	if len(b) < bodyLen || b[0] != dhchap || b[1] != challenge || le.Uint16(b[4:]) != h.transaction {
		h.t.Fatalf("% x is no challenge", b)
	}
	n, length := int(b[6]), int(le.Uint16(b[10:]))
	h.hash, h.group, h.s1, h.c1 = Hash(b[8]), Group(b[9]), le.Uint32(b[12:]), b[bodyLen:][:n]
	if len(b) != bodyLen+n+length || n != h.hash.size() || h.s1 == 0 {
		h.t.Fatalf("challenge % x", b)
	}
	if h.key, h.public = nil, nil; h.group != Null {
		var e exchange
		var ok bool
		e, h.public = h.group.begin()
		if h.key, ok = e.end(b[bodyLen+n:]); !ok {
			h.t.Fatal("the controller's public value is none")
		}
	}
	r := make([]byte, bodyLen+2*n+len(h.public))
	r[0], r[1], r[6] = dhchap, reply, byte(n)
	le.PutUint16(r[4:], h.transaction)
	le.PutUint16(r[10:], uint16(len(h.public)))
	copy(r[bodyLen:], h.session().proof(h.host.of(hostNQN), h.key, h.c1, h.s1, "HostHost", hostNQN, subNQN))
	if h.controller != nil {
		h.s2, h.c2 = 77, make([]byte, n)
		rand.Read(h.c2)
		r[8] = 1
		le.PutUint32(r[12:], h.s2)
		copy(r[bodyLen+n:], h.c2)
	}
	copy(r[bodyLen+2*n:], h.public)
	return r
}

// session computes as the other side does.
func (h *host) session() *Session { return &Session{hash: h.hash, transaction: h.transaction} }

// accepted checks a success message, and reports whether the controller has its key.
func (h *host) accepted(b []byte) bool {
	h.t.Helper()
	if len(b) < bodyLen || b[0] != dhchap || b[1] != success1 || le.Uint16(b[4:]) != h.transaction || int(b[6]) != h.hash.size() {
		h.t.Fatalf("% x is no success", b)
	}
	if h.controller == nil {
		return b[8] == 0 && len(b) == bodyLen
	}
	return b[8] == 1 && bytes.Equal(b[bodyLen:], h.session().proof(h.controller.of(subNQN), h.key, h.c2, h.s2, "Controller", subNQN, hostNQN))
}

func (h *host) short(kind, id uint8, n int) []byte {
	return (&Session{transaction: h.transaction}).message(kind, id, n)
}
