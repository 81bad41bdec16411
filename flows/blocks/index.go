package blocks

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// The file of an index, all numbers little endian. The entries follow the header.
//
//	at   bytes
//	 0       8  "UFCACHE1"
//	 8       4  CRC-32C of all bytes that follow
//	12       4  1: a server uses the cache; 2: it has ended, and the entries are complete
//	16      40  the machine's boot ID, padded with 0
//	56      32  the region's contents, hashed
//	88      32  the identity of the target, 0: unknown
//	120     32  key of the tags
//	152      8  number of entries
//
// An entry:
//
//	 0       8  address of the buffer in the region
//	 8       8  offset of its bytes on the target
//	16       4  their number
//	20       4  0
//	24      16  their tag: AES-GCM without plaintext; the nonce is the address
const (
	indexID     = "UFCACHE1"
	indexHeader = 160
	indexEntry  = 40
	indexMost   = 1 << 26 // entries

	indexOpen     = 1
	indexComplete = 2
)

// Discard is a reason for which cached data of an earlier server is not used.
type Discard string

// The reasons. Unclean and Damaged concern a whole index, whose number of buffers is not known.
const (
	Unclean     Discard = "unclean"      // the earlier server did not end in good order
	Damaged     Discard = "damaged"      // the index is not what a server wrote
	Restarted   Discard = "restarted"    // the machine has started since
	OtherRegion Discard = "other_region" // the region is on another device, or divided otherwise
	Changed     Discard = "changed"      // the target is another one, or may have been written
	NoBuffer    Discard = "no_buffer"    // the buffer is in use, or the cache is smaller
	BadTag      Discard = "bad_tag"      // the bytes are not those that were cached
)

// Discards are all reasons.
var Discards = []Discard{Unclean, Damaged, Restarted, OtherRegion, Changed, NoBuffer, BadTag}

// index is the file that says what the buffers of a cache have while no server runs.
type index struct {
	file   *os.File
	boot   string
	region [32]byte
	source [32]byte
}

// indexed is one entry.
type indexed struct {
	address, offset uint64
	length          uint32
	tag             [16]byte
}

// openIndex opens the file, and keeps others from it.
func openIndex(path string) (*index, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the cache's index: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errors.New("another flow or daemon uses it (each flow needs an index of its own)")
	}
	info, e := f.Stat()
	switch {
	case err != nil:
	case e != nil:
		err = e
	case !info.Mode().IsRegular():
		err = errors.New("it is not a file")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the cache's index %s: %w", path, err), f.Close())
	}
	return &index{file: f}, nil
}

// read returns the entries that can be used if their tags are right, and the key of the tags. Without any it
// returns why, and how many there were, or 0 for a new file.
func (x *index) read() (all []indexed, key []byte, why Discard, n uint64, err error) {
	info, err := x.file.Stat()
	if err != nil || info.Size() == 0 {
		return nil, nil, "", 0, err
	}
	if info.Size() < indexHeader || info.Size() > indexHeader+indexMost*indexEntry {
		return nil, nil, Damaged, 1, nil
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(io.NewSectionReader(x.file, 0, info.Size()), b); err != nil {
		return nil, nil, "", 0, fmt.Errorf("read the cache's index %s: %w", x.file.Name(), err)
	}
	all, key, why, n = x.decode(b)
	return all, key, why, n, nil
}

// decode decodes a file of at least a header.
func (x *index) decode(b []byte) (all []indexed, key []byte, why Discard, n uint64) {
	state := binary.LittleEndian.Uint32(b[12:])
	n = binary.LittleEndian.Uint64(b[152:])
	switch {
	case string(b[:8]) != indexID, crc32.Checksum(b[12:], castagnoli) != binary.LittleEndian.Uint32(b[8:]), n != uint64(len(b)-indexHeader)/indexEntry:
		return nil, nil, Damaged, 1
	case state == indexOpen:
		return nil, nil, Unclean, 1
	case state != indexComplete:
		return nil, nil, Damaged, 1
	case x.boot == "" || string(bytes.TrimRight(b[16:56], "\x00")) != x.boot:
		return nil, nil, Restarted, n
	case !bytes.Equal(b[56:88], x.region[:]):
		return nil, nil, OtherRegion, n
	case x.source == [32]byte{} || !bytes.Equal(b[88:120], x.source[:]):
		return nil, nil, Changed, n
	}
	all = make([]indexed, n)
	for i := range all {
		e := b[indexHeader+i*indexEntry:]
		all[i] = indexed{binary.LittleEndian.Uint64(e), binary.LittleEndian.Uint64(e[8:]), binary.LittleEndian.Uint32(e[16:]), [16]byte(e[24:40])}
	}
	return all, b[120:152], "", n
}

// write replaces the file. If this process is killed meanwhile, the checksum is wrong.
func (x *index) write(state uint32, key []byte, all []indexed) error {
	b := make([]byte, indexHeader+len(all)*indexEntry)
	copy(b, indexID)
	binary.LittleEndian.PutUint32(b[12:], state)
	copy(b[16:56], x.boot)
	copy(b[56:], x.region[:])
	copy(b[88:], x.source[:])
	copy(b[120:152], key)
	binary.LittleEndian.PutUint64(b[152:], uint64(len(all)))
	for i := range all {
		e := b[indexHeader+i*indexEntry:]
		binary.LittleEndian.PutUint64(e, all[i].address)
		binary.LittleEndian.PutUint64(e[8:], all[i].offset)
		binary.LittleEndian.PutUint32(e[16:], all[i].length)
		copy(e[24:], all[i].tag[:])
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	_, err := x.file.WriteAt(b, 0)
	if err == nil {
		err = x.file.Truncate(int64(len(b)))
	}
	if err != nil {
		return fmt.Errorf("write the cache's index %s: %w", x.file.Name(), err)
	}
	return nil
}

func (x *index) close() error { return x.file.Close() }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tagger makes the tags of one index.
type tagger struct {
	aead cipher.AEAD
	tag  [16]byte
}

func newTagger(key []byte) (*tagger, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &tagger{aead: aead}, err
}

// of returns the tag of a buffer's bytes. A key is used for one set of buffers, so an address is used once.
func (t *tagger) of(address uint64, data []byte) [16]byte {
	var nonce [12]byte
	binary.LittleEndian.PutUint64(nonce[:], address)
	return [16]byte(t.aead.Seal(t.tag[:0], nonce[:], nil, data))
}

// newKey returns a key for a tagger.
func newKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return key
}

// bootID identifies the time since the machine has started; "" if that is not known.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	text := strings.TrimSpace(string(b))
	return text[:min(len(text), 40)]
}
