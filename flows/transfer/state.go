package transfer

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// record is what a receiver knows of a copy that is not complete, and of a device also afterwards. Its file has two slots
// of recordSlot bytes, which are written in turn, so that one stays when the other is torn. A disk's block is no longer
// than a slot. A slot begins with:
//
//	offset  bytes
//	     0      8  uXFstate
//	     8      4  version: 2 (1: leaves have another hash)
//	    12      4  flags: bit 0 the copy is complete, bit 1 its bytes are complete and durable
//	    16      8  number of the record: the higher one counts
//	    24      8  bytes of the source
//	    32      8  bytes that are durable
//	    40      8  owner: first bytes of the SHA-256 of the sender's certificate name; 0 without TLS
//	    48      8  inode of the file, 0 of a device
//	    56      8  time of the record, nanoseconds since 1970
//	    64     32  identity of the source
//	    96     32  identity of the device that is written, 0 of a file
//	   128     32  hash of the whole, with bit 1
//	   160      2  length of the state of the hash
//	   162      2  length of the name
//	   164         state (maxHashed), name (maxName)
//	  1444      8  of a device: bytes from which samples were taken; 0: none (also of older releases)
//	  1452     32  hash of the samples
//	  2044      4  CRC-32C of bytes 0 to 2043
type record struct {
	complete, whole bool
	old             bool // of version 1: it is not continued
	number          uint64
	size, durable   uint64
	owner           uint64
	inode           uint64
	written         int64
	source          [32]byte
	device          [32]byte
	digest          [32]byte
	hashed          []byte
	name            string
	sampled         uint64
	samples         [32]byte
}

const (
	recordLen     = 2048
	recordSlot    = 4096
	recordMagic   = "uXFstate"
	recordVersion = 2
	oldVersion    = 1 // the same, but that leaves are hashed by SHA-256
	recordHashed  = 164
	recordName    = recordHashed + maxHashed
	recordSamples = recordName + maxName
	recordSum     = recordLen - 4
)

const (
	recordComplete = 1 << 0
	recordWhole    = 1 << 1
)

// put writes a record into recordLen bytes.
func (r *record) put(b []byte) {
	clear(b[:recordLen])
	copy(b, recordMagic)
	be.PutUint32(b[8:], recordVersion)
	flags := uint32(0)
	if r.complete {
		flags |= recordComplete
	}
	if r.whole {
		flags |= recordWhole
	}
	be.PutUint32(b[12:], flags)
	for i, n := range []uint64{r.number, r.size, r.durable, r.owner, r.inode, uint64(r.written)} {
		be.PutUint64(b[16+8*i:], n)
	}
	copy(b[64:], r.source[:])
	copy(b[96:], r.device[:])
	copy(b[128:], r.digest[:])
	be.PutUint16(b[160:], uint16(len(r.hashed)))
	be.PutUint16(b[162:], uint16(len(r.name)))
	copy(b[recordHashed:recordName], r.hashed)
	copy(b[recordName:recordSamples], r.name)
	be.PutUint64(b[recordSamples:], r.sampled)
	copy(b[recordSamples+8:], r.samples[:])
	be.PutUint32(b[recordSum:], crc32.Checksum(b[:recordSum], castagnoli))
}

var errRecord = errors.New("it is no record of a copy")

// parseRecord parses a record. The bytes may be anything.
func parseRecord(b []byte) (r record, err error) {
	if len(b) != recordLen || string(b[:8]) != recordMagic || be.Uint32(b[recordSum:]) != crc32.Checksum(b[:recordSum], castagnoli) {
		return r, errRecord
	}
	v := be.Uint32(b[8:])
	if v != recordVersion && v != oldVersion {
		return r, fmt.Errorf("its version is %d, and this program has %d: let the release that wrote it complete the copy", v, recordVersion)
	}
	flags, hashed, name := be.Uint32(b[12:]), int(be.Uint16(b[160:])), int(be.Uint16(b[162:]))
	r = record{old: v == oldVersion, complete: flags&recordComplete != 0, whole: flags&recordWhole != 0, number: be.Uint64(b[16:]), size: be.Uint64(b[24:]), durable: be.Uint64(b[32:]),
		owner: be.Uint64(b[40:]), inode: be.Uint64(b[48:]), written: int64(be.Uint64(b[56:])), source: [32]byte(b[64:96]), device: [32]byte(b[96:128]), digest: [32]byte(b[128:160]),
		sampled: be.Uint64(b[recordSamples:]), samples: [32]byte(b[recordSamples+8:])}
	switch {
	case flags&^(recordComplete|recordWhole) != 0 || hashed > maxHashed || name > maxName || r.size > maxSize || r.durable > r.size || r.sampled > maxSize:
		return record{}, errRecord
	case r.durable != r.size && (r.durable%leafSize != 0 || r.whole || r.complete):
		return record{}, errRecord
	}
	r.hashed = append([]byte(nil), b[recordHashed:recordHashed+hashed]...)
	r.name = string(b[recordName : recordName+name])
	return r, nil
}

// recordFile is the file of a record. One goroutine at a time uses it.
type recordFile struct {
	file *os.File
	last record // the one that counts; number 0: none
	buf  [recordLen]byte
}

// openRecord reads a file's record. An unreadable one counts as none: the copy begins again. The file belongs to the
// result.
func openRecord(f *os.File) (*recordFile, error) {
	r := &recordFile{file: f}
	var version error
	for slot := range int64(2) {
		n, err := f.ReadAt(r.buf[:], slot*recordSlot)
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read %s: %w", f.Name(), err)
		}
		one, err := parseRecord(r.buf[:n])
		switch {
		case err == nil && one.number > r.last.number:
			r.last = one
		case err != nil && !errors.Is(err, errRecord):
			version = fmt.Errorf("read %s: %w", f.Name(), err)
		}
	}
	return r, version
}

// reserveRecord gives a new file its blocks, so that a record can be written when the disk is full.
func reserveRecord(f *os.File) error {
	if _, err := f.WriteAt(make([]byte, 2*recordSlot), 0); err != nil {
		return fmt.Errorf("make %s: %w", f.Name(), err)
	}
	return f.Sync()
}

// write makes a record durable. Its number is the next one.
func (r *recordFile) write(one record) error {
	one.number, one.written, one.old = r.last.number+1, time.Now().UnixNano(), false
	one.put(r.buf[:])
	if _, err := r.file.WriteAt(r.buf[:], int64(one.number%2)*recordSlot); err != nil {
		return fmt.Errorf("record the copy in %s: %w", r.file.Name(), err)
	}
	if err := unix.Fdatasync(int(r.file.Fd())); err != nil {
		return fmt.Errorf("record the copy in %s: %w", r.file.Name(), err)
	}
	r.last = one
	return nil
}

func (r *recordFile) close() error { return r.file.Close() }

// Record says how far a copy is that was not completed. Of a device there is a record of its last copy, too.
type Record struct {
	Name          string // path of the file, or of the device
	Complete      bool
	Size, Durable uint64 // bytes
	Written       time.Time
	Digest        [32]byte // of a complete copy
}

// Incomplete lists the copies below a directory that are not complete, or the record of a device. state is the directory
// with the records of devices. It reads files that a receiver may write meanwhile.
func Incomplete(path, state string) (all []Record, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("look for copies that are not complete: %w", err)
	}
	add := func(name, file string) error {
		f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return ignoreMissing(err)
		}
		defer f.Close()
		r, err := openRecord(f)
		if err == nil && r.last.number > 0 {
			l := &r.last
			if base := filepath.Base(l.name); name != path && l.name != "" { // that of the file is shorter if it is long
				name = filepath.Join(filepath.Dir(name), base)
			}
			all = append(all, Record{Name: name, Complete: l.complete, Size: l.size, Durable: l.durable, Written: time.Unix(0, l.written), Digest: l.digest})
		}
		return err
	}
	if !info.IsDir() {
		st, is := info.Sys().(*syscall.Stat_t)
		if !is || info.Mode()&(fs.ModeDevice|fs.ModeCharDevice) != fs.ModeDevice {
			return nil, fmt.Errorf("look for copies in %s: it is neither a directory nor a block device", path)
		}
		err = add(path, filepath.Join(state, recordOf(st.Rdev)))
		return all, err
	}
	err = filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		base := filepath.Base(file)
		if err != nil || d.IsDir() || !strings.HasPrefix(base, hidden) || !strings.HasSuffix(base, recordSuffix) {
			return err
		}
		return add(filepath.Join(filepath.Dir(file), strings.TrimSuffix(base[len(hidden):], recordSuffix)), file)
	})
	return all, err
}
