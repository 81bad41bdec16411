package dhchap

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
)

// Hash is one of the hash functions.
type Hash uint8

// Hash functions by their identifiers. A key with None is used unchanged.
const (
	None Hash = iota
	SHA256
	SHA384
	SHA512
)

var hashes = [...]func() hash.Hash{SHA256: sha256.New, SHA384: sha512.New384, SHA512: sha512.New}

func (h Hash) valid() bool { return h >= SHA256 && h <= SHA512 }

// size is the length of the hash in bytes.
func (h Hash) size() int { return hashes[h]().Size() }

func (h Hash) sum(b []byte) []byte {
	f := hashes[h]()
	f.Write(b)
	return f.Sum(nil)
}

// mac returns the HMAC of all parts, concatenated.
func (h Hash) mac(key []byte, parts ...[]byte) []byte {
	m := hmac.New(hashes[h], key)
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}
