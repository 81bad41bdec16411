package index

import "net/netip"

// Kinds of keys, in their hashes.
const (
	kindAddress4 = iota + 1
	kindAddress6
	kindPair
	kindPort
	kindProtocol
	kindEtherType
	kindVLAN
)

// mix is the finalizer of MurmurHash3, 64 bits.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// hash1 and hash2 are the hashes of a key of one and of two words.
func hash1(kind, a uint64) uint64    { return mix(mix(kind) ^ a) }
func hash2(kind, a, b uint64) uint64 { return mix(hash1(kind, a) ^ b) }

// hashPair is the hash of two addresses in either order, from the hashes of the addresses.
func hashPair(a, b uint64) uint64 { return hash2(kindPair, min(a, b), max(a, b)) }

func hash4(a []byte) uint64 { return hash1(kindAddress4, uint64(le.Uint32(a))) }
func hash6(a []byte) uint64 { return hash2(kindAddress6, le.Uint64(a), le.Uint64(a[8:])) }

func hashAddress(a netip.Addr) uint64 {
	if a.Is4() {
		b := a.As4()
		return hash4(b[:])
	}
	b := a.As16()
	return hash6(b[:])
}

// short is the part of a hash that an index keeps.
func short(h uint64) uint32 { return uint32(h >> 32) }
