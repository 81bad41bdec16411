package transfer

import (
	"crypto/sha256"
	"encoding"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"sync"
	"sync/atomic"

	"github.com/zeebo/blake3"
)

// leafSize is how many bytes have a hash each. The last of a source may be shorter. Pieces, and places to resume at, begin
// at multiples of it.
const leafSize = 1 << 20

// leafHash is the BLAKE3 hash of a leaf.
type leafHash [32]byte

// hashLeaf hashes a leaf. It does not allocate.
func hashLeaf(b []byte) leafHash { return blake3.Sum256(b) }

// zeroLeaf is the hash of leafSize zeros.
var zeroLeaf = sync.OnceValue(func() leafHash { return hashLeaf(make([]byte, leafSize)) })

// digest hashes the list of the hashes of all leaves: the SHA-256 of all of them, in their order. Leaves can thus be
// hashed by several threads, the state up to a place is short, and crypto/sha256 can save it. The tree of BLAKE3 over
// the whole has another hash for the same bytes at each offset, so that holes would have to be hashed as zeros.
type digest struct {
	list hash.Hash
	at   uint64 // bytes that are hashed, a multiple of leafSize until the end
}

func newDigest() *digest { return &digest{list: sha256.New()} }

// add adds the hashes of the next n bytes.
func (d *digest) add(n uint64, leaves []leafHash) {
	for i := range leaves {
		d.list.Write(leaves[i][:])
	}
	d.at += n
}

// addZeros adds the next n bytes, which are zeros, or as many of them as it does in one call. It returns their number.
func (d *digest) addZeros(n uint64) (did uint64) {
	const most = 4096 // leaves; they take about a millisecond
	zero := zeroLeaf()
	for ; did+leafSize <= n && did < most*leafSize; did += leafSize {
		d.list.Write(zero[:])
	}
	if n -= did; n > 0 && n < leafSize {
		last := hashLeaf(make([]byte, n))
		d.list.Write(last[:])
		did += n
	}
	d.at += did
	return did
}

// sum returns the hash of all that was added.
func (d *digest) sum() (s [32]byte) {
	d.list.Sum(s[:0])
	return s
}

// save appends the state to b[:0]. It does not allocate if b has room.
func (d *digest) save(b []byte) []byte {
	state, err := d.list.(encoding.BinaryAppender).AppendBinary(b[:0])
	if err != nil {
		panic(err) // crypto/sha256 has no error
	}
	return state
}

// restore continues from a state at an offset. The state is a peer's, or of a file.
func (d *digest) restore(at uint64, state []byte) error {
	if at == 0 && len(state) == 0 {
		d.list.Reset()
		d.at = 0
		return nil
	}
	if err := d.list.(encoding.BinaryUnmarshaler).UnmarshalBinary(state); err != nil {
		d.list.Reset()
		return fmt.Errorf("continue the hash at byte %d: %w", at, err)
	}
	d.at = at
	return nil
}

// hashing is the work of hashing one piece. Its owner sets bytes and passes it to a pool, and must not touch it until done
// reports true.
type hashing struct {
	bytes  []byte
	sum    uint32     // CRC-32C of the bytes
	leaves []leafHash // of the bytes
	ready  atomic.Bool
}

// newHashing makes the work for pieces of at most that many bytes.
func newHashing(piece uint64) *hashing {
	return &hashing{leaves: make([]leafHash, 0, (piece+leafSize-1)/leafSize)}
}

func (h *hashing) done() bool { return h.ready.Load() }

// run does the work. The checksum goes first over each leaf, whose bytes the hash then finds in the processor's cache.
func (h *hashing) run() {
	h.sum, h.leaves = 0, h.leaves[:0]
	for rest := h.bytes; len(rest) > 0; {
		leaf := rest[:min(len(rest), leafSize)]
		rest = rest[len(leaf):]
		h.sum = crc32.Update(h.sum, castagnoli, leaf)
		h.leaves = append(h.leaves, hashLeaf(leaf))
	}
	h.ready.Store(true)
}

// hashers are goroutines that hash pieces.
type hashers struct {
	work chan *hashing
	all  sync.WaitGroup
}

// newHashers starts n goroutines. At most most pieces may be under way, so that begin does not wait.
func newHashers(n, most int) *hashers {
	p := &hashers{work: make(chan *hashing, most)}
	for range n {
		p.all.Go(func() {
			for h := range p.work {
				h.run()
			}
		})
	}
	return p
}

// begin hands over a piece.
func (p *hashers) begin(h *hashing, bytes []byte) {
	h.bytes = bytes
	h.ready.Store(false)
	p.work <- h
}

// close ends the goroutines, after what they have been given.
func (p *hashers) close() {
	close(p.work)
	p.all.Wait()
}

var errDigest = errors.New("the hash of what has arrived is not that of what was sent: it is thrown away")
