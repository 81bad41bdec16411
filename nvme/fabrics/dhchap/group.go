package dhchap

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"slices"
	"sync"
)

// Group is a Diffie-Hellman group of RFC 7919, or none.
type Group uint8

// Groups by their identifiers. Null is none.
const (
	Null Group = iota
	FFDHE2048
	FFDHE3072
	FFDHE4096
	FFDHE6144
	FFDHE8192
)

var groupNames = []string{"none", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"}

// Groups returns the names of all groups.
func Groups() []string { return slices.Clone(groupNames) }

// GroupOf returns the group with that name.
func GroupOf(name string) (Group, error) {
	if i := slices.Index(groupNames, name); i >= 0 {
		return Group(i), nil
	}
	return 0, fmt.Errorf("%q is no group: %v are", name, groupNames)
}

// String returns the group's name.
func (g Group) String() string { return groupNames[g] }

// sizes are the number of bits and the number X of RFC 7919, appendix A.
var sizes = [...]struct {
	bits uint
	x    int64
}{FFDHE2048: {2048, 560316}, FFDHE3072: {3072, 2625351}, FFDHE4096: {4096, 5736041}, FFDHE6144: {6144, 15705020}, FFDHE8192: {8192, 10965728}}

// size is the length of a public value in bytes.
func (g Group) size() int { return int(sizes[g].bits / 8) }

var primes [len(sizes)]struct {
	once sync.Once
	p    *big.Int
}

// prime is the group's: 2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1.
func (g Group) prime() *big.Int {
	at := &primes[g]
	at.once.Do(func() {
		b, one := sizes[g].bits, big.NewInt(1)
		p := euler(b - 130)
		p.Add(p, big.NewInt(sizes[g].x))
		p.Lsh(p, 64)
		p.Add(p, new(big.Int).Lsh(one, b))
		p.Sub(p, new(big.Int).Lsh(one, b-64))
		at.p = p.Sub(p, one)
	})
	return at.p
}

// euler returns floor(2^n e): the sum of 1/k!, computed with more bits than it keeps.
func euler(n uint) *big.Int {
	const more = 64
	sum, term := new(big.Int), new(big.Int).Lsh(big.NewInt(1), n+more)
	for k := int64(1); term.Sign() > 0; k++ {
		sum.Add(sum, term)
		term.Quo(term, big.NewInt(k))
	}
	return sum.Rsh(sum, more)
}

// exponentBits is more than twice the strength of any group.
const exponentBits = 512

// exchange is one side's part of an exchange.
type exchange struct {
	group   Group
	private *big.Int
}

// begin chooses the private value, and returns the public one.
func (g Group) begin() (exchange, []byte) {
	var b [exponentBits / 8]byte
	rand.Read(b[:]) // never fails
	b[0] |= 0x80
	e := exchange{g, new(big.Int).SetBytes(b[:])}
	return e, e.raise(big.NewInt(2))
}

// raise returns a value to the power of the private one, with the length of the prime.
func (e *exchange) raise(v *big.Int) []byte {
	return v.Exp(v, e.private, e.group.prime()).FillBytes(make([]byte, e.group.size()))
}

// end computes the key of the session. It returns false if the other side's value is not in the
// group, or would make a key that anyone can guess.
func (e *exchange) end(public []byte) ([]byte, bool) {
	v, last := new(big.Int).SetBytes(public), new(big.Int).Sub(e.group.prime(), big.NewInt(1))
	if v.Cmp(big.NewInt(1)) <= 0 || v.Cmp(last) >= 0 {
		return nil, false
	}
	return e.raise(v), true
}
