package powercut

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

var le = binary.LittleEndian

// Flags of an entry, with the values of include/linux/dm-log-writes in Linux
// (drivers/md/dm-log-writes.c) and of QEMU's block/blklogwrites.c.
const (
	flush   = 1 << iota // everything that completed before it is durable
	fua                 // the write itself is durable
	discard             // no data; the range reads as zeros
	mark                // a label, not a write
)

// Byte positions in the superblock and in the header of an entry.
const (
	magic   = 0x6a736677736872
	version = 1

	posVersion    = 8
	posEntries    = 16
	posSectorSize = 24

	posCount  = 8
	posFlags  = 16
	posLength = 24
	headerLen = 32
)

// Entry is one request to the disk.
type Entry struct {
	Flags  uint64
	Offset int64  // on the disk, in bytes
	Length int64  // in bytes; 0: a flush without data
	Data   []byte // Length bytes that share the parsed record's memory; nil for a discard
}

// Log is a record of a disk, in the order in which requests completed.
type Log struct {
	Sector  int64 // the unit of the disk, in bytes
	Entries []Entry
}

// errLog is matched when bytes are not a record, or the record is damaged.
var errLog = errors.New("not a record of a disk's writes")

// parse reads a record of a disk of size disk, in bytes. It validates all of it. The entries share b.
func parse(b []byte, disk int64) (*Log, error) {
	if len(b) < headerLen || le.Uint64(b) != magic || le.Uint64(b[posVersion:]) != version {
		return nil, fmt.Errorf("%w: it does not begin with the superblock of one", errLog)
	}
	n, sector := le.Uint64(b[posEntries:]), int64(le.Uint32(b[posSectorSize:]))
	if sector < 512 || sector > 64<<10 || bits.OnesCount64(uint64(sector)) != 1 || int64(len(b)) < sector {
		return nil, fmt.Errorf("%w: sectors of %d bytes", errLog, sector)
	}
	if n > uint64(len(b))/uint64(sector) {
		return nil, fmt.Errorf("%w: %d entries are more than fit", errLog, n)
	}
	l := &Log{Sector: sector, Entries: make([]Entry, 0, n)}
	rest := b[sector:]
	for i := range n {
		e, used, err := l.entry(rest, disk)
		if err != nil {
			return nil, fmt.Errorf("%w: entry %d: %w", errLog, i, err)
		}
		l.Entries = append(l.Entries, e)
		rest = rest[used:]
	}
	return l, nil
}

// entry reads the entry at the start of b and returns its length.
func (l *Log) entry(b []byte, disk int64) (e Entry, used int64, err error) {
	if int64(len(b)) < l.Sector {
		return e, 0, errors.New("it is cut off")
	}
	at, count, length := le.Uint64(b), le.Uint64(b[posCount:]), le.Uint64(b[posLength:])
	e.Flags = le.Uint64(b[posFlags:])
	last := uint64(disk / l.Sector)
	switch {
	case e.Flags >= 2*mark:
		return e, 0, fmt.Errorf("flags %#x are unknown", e.Flags)
	case at > last || count > last-at:
		return e, 0, fmt.Errorf("%d sectors at sector %d of a disk of %d", count, at, last)
	case e.Flags&mark != 0:
		return l.mark(e, b, length)
	}
	e.Offset, e.Length = int64(at)*l.Sector, int64(count)*l.Sector
	if e.Flags&discard != 0 {
		return e, l.Sector, nil
	}
	if e.Length > int64(len(b))-l.Sector {
		return e, 0, fmt.Errorf("its %d bytes are cut off", e.Length)
	}
	e.Data = b[l.Sector:][:e.Length]
	return e, l.Sector + e.Length, nil
}

// mark reads a label, which takes as many sectors as it needs.
func (l *Log) mark(e Entry, b []byte, length uint64) (Entry, int64, error) {
	if length > uint64(int64(len(b))-l.Sector) {
		return e, 0, fmt.Errorf("a label of %d bytes is cut off", length)
	}
	used := l.Sector + (int64(length)+l.Sector-1)/l.Sector*l.Sector
	if used > int64(len(b)) {
		return e, 0, errors.New("a label is cut off")
	}
	return e, used, nil
}
