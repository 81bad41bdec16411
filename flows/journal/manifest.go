package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/unifiedd/unifiedd/flows/protocol"
)

// Manifest lists the segments that must exist on the disk, and has the log's durable and reserved
// positions. docs/reference/capture-format.md has its layout.
type Manifest struct {
	Flags          uint32
	Generation     uint64 // grows by 1, 3 or another odd number with each write
	ID             [16]byte
	Oldest, Newest uint64 // segments; Oldest is Newest+1 if there is none
	Next           uint64 // every record before this position was durable
	Term           uint64 // 0: no group
	Vote, Self     uint32
	Committed      uint64
	Boot           [16]byte // of the machine, when the last run began
	Runs           []Run    // the newest, in the order of their segments
	Epochs         []Epoch
	Absent         []Range // segments between Oldest and Newest that do not exist
	Reserved       uint64  // no record has this position or a later one
}

// Run is one run of the flow that wrote the log.
type Run struct {
	Number, Start uint64 // as in the heads of its segments
	Segment       uint64 // its first
	Epoch         uint64
}

// Epoch is where an epoch of a group's log begins.
type Epoch struct{ Number, First uint64 }

// Range is some segments, both ends included.
type Range struct{ First, Last uint64 }

const (
	// FlagGroup says that the log belongs to a group.
	FlagGroup = 1 << iota
	// FlagEnded says that the last run ended in order: Next is one past the last record.
	FlagEnded
	// FlagRecovering says that a member of a group may have lost records that it acknowledged.
	FlagRecovering
)

// levelShift is where the flags have how safe a record was when a member of a group acknowledged it: two bits.
const levelShift, levelMask = 4, 3 << 4

// Level returns how safe records were when the last run acknowledged them; 0: an older release wrote the manifest, which
// does not say it.
func (m *Manifest) Level() protocol.Durability {
	return protocol.Durability(m.Flags & levelMask >> levelShift)
}

// SetLevel records how safe records are when this run acknowledges them.
func (m *Manifest) SetLevel(d protocol.Durability) {
	m.Flags = m.Flags&^levelMask | uint32(d)<<levelShift
}

// Offsets in a manifest. The CRC covers all bytes before it.
const (
	manifestLen = 4096

	posManifestVersion = 8
	posFlags           = 12
	posGeneration      = 16
	posLogID           = 24
	posOldest          = 40
	posNewest          = 48
	posNext            = 56
	posTerm            = 64
	posVote            = 72
	posSelf            = 76
	posCommitted       = 80
	posBoot            = 88
	posRunCount        = 104
	posEpochCount      = 108
	posRuns            = 112
	posEpochs          = 1648
	posAbsentCount     = 2672
	posAbsent          = 2680
	posReserved        = 3704
	posManifestCRC     = manifestLen - 4

	mostRuns, runLen     = 48, 32
	mostEpochs, epochLen = 64, 16
	mostAbsent, rangeLen = 64, 16

	manifestMagic   = "UFDMANIF"
	manifestVersion = 1
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errEmptyManifest = errors.New("only zeros")
)

// encode returns the bytes of a manifest. If there are too many runs or epochs it omits the oldest;
// if there are too many absent ranges it joins the oldest into one.
func (m *Manifest) encode() []byte {
	b := make([]byte, manifestLen)
	copy(b, manifestMagic)
	le.PutUint32(b[posManifestVersion:], manifestVersion)
	le.PutUint32(b[posFlags:], m.Flags)
	le.PutUint64(b[posGeneration:], m.Generation)
	copy(b[posLogID:], m.ID[:])
	le.PutUint64(b[posOldest:], m.Oldest)
	le.PutUint64(b[posNewest:], m.Newest)
	le.PutUint64(b[posNext:], m.Next)
	le.PutUint64(b[posTerm:], m.Term)
	le.PutUint32(b[posVote:], m.Vote)
	le.PutUint32(b[posSelf:], m.Self)
	le.PutUint64(b[posCommitted:], m.Committed)
	copy(b[posBoot:], m.Boot[:])
	runs, epochs := newest(m.Runs, mostRuns), newest(m.Epochs, mostEpochs)
	le.PutUint32(b[posRunCount:], uint32(len(runs)))
	le.PutUint32(b[posEpochCount:], uint32(len(epochs)))
	for i, r := range runs {
		putWords(b[posRuns+i*runLen:], r.Number, r.Start, r.Segment, r.Epoch)
	}
	for i, e := range epochs {
		putWords(b[posEpochs+i*epochLen:], e.Number, e.First)
	}
	absent := m.Absent
	if extra := len(absent) - mostAbsent; extra > 0 {
		absent = append([]Range{{absent[0].First, absent[extra].Last}}, absent[extra+1:]...)
	}
	le.PutUint32(b[posAbsentCount:], uint32(len(absent)))
	for i, a := range absent {
		putWords(b[posAbsent+i*rangeLen:], a.First, a.Last)
	}
	le.PutUint64(b[posReserved:], m.Reserved)
	le.PutUint32(b[posManifestCRC:], crc32.Checksum(b[:posManifestCRC], castagnoli))
	return b
}

// newest returns the last n elements.
func newest[T any](all []T, n int) []T { return all[max(0, len(all)-n):] }

func putWords(b []byte, words ...uint64) {
	for i, w := range words {
		le.PutUint64(b[8*i:], w)
	}
}

// decodeManifest reads the bytes of a manifest.
func decodeManifest(b []byte) (m Manifest, err error) {
	switch {
	case !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }):
		return m, errEmptyManifest
	case len(b) < manifestLen:
		return m, errors.New("cut short")
	case string(b[:len(manifestMagic)]) != manifestMagic:
		return m, errors.New("it is none")
	case crc32.Checksum(b[:posManifestCRC], castagnoli) != le.Uint32(b[posManifestCRC:]):
		return m, errors.New("wrong checksum")
	case le.Uint32(b[posManifestVersion:]) != manifestVersion:
		return m, fmt.Errorf("version %d is not known here", le.Uint32(b[posManifestVersion:]))
	}
	m = Manifest{
		Flags: le.Uint32(b[posFlags:]), Generation: le.Uint64(b[posGeneration:]), ID: [16]byte(b[posLogID:]),
		Oldest: le.Uint64(b[posOldest:]), Newest: le.Uint64(b[posNewest:]), Next: le.Uint64(b[posNext:]),
		Term: le.Uint64(b[posTerm:]), Vote: le.Uint32(b[posVote:]), Self: le.Uint32(b[posSelf:]),
		Committed: le.Uint64(b[posCommitted:]), Boot: [16]byte(b[posBoot:]), Reserved: le.Uint64(b[posReserved:]),
	}
	runs, epochs, absent := le.Uint32(b[posRunCount:]), le.Uint32(b[posEpochCount:]), le.Uint32(b[posAbsentCount:])
	if runs > mostRuns || epochs > mostEpochs || absent > mostAbsent {
		return m, errors.New("impossible numbers of entries")
	}
	word := func(at int) uint64 { return le.Uint64(b[at:]) }
	for at := posRuns; at < posRuns+int(runs)*runLen; at += runLen {
		m.Runs = append(m.Runs, Run{word(at), word(at + 8), word(at + 16), word(at + 24)})
	}
	for at := posEpochs; at < posEpochs+int(epochs)*epochLen; at += epochLen {
		m.Epochs = append(m.Epochs, Epoch{word(at), word(at + 8)})
	}
	for at := posAbsent; at < posAbsent+int(absent)*rangeLen; at += rangeLen {
		m.Absent = append(m.Absent, Range{word(at), word(at + 8)})
	}
	return m, m.check()
}

// check reports whether the numbers are possible.
func (m *Manifest) check() error {
	const most = 1 << 62
	if m.Next == 0 || m.Reserved < m.Next || m.Reserved > most || m.Newest > most || m.Oldest == 0 || m.Oldest > m.Newest+1 {
		return errors.New("impossible numbers of segments or positions")
	}
	after := uint64(0)
	for _, a := range m.Absent {
		if a.First <= after || a.Last < a.First || a.Last > most {
			return errors.New("impossible ranges of segments")
		}
		after = a.Last
	}
	return nil
}

// Names reports whether a segment must exist.
func (m *Manifest) Names(segment uint64) bool {
	return segment >= m.Oldest && segment <= m.Newest &&
		!slices.ContainsFunc(m.Absent, func(a Range) bool { return segment >= a.First && segment <= a.Last })
}

// runOf returns the run that wrote a segment; ok is false if it is not known.
func (m *Manifest) runOf(segment uint64) (r Run, ok bool) {
	if segment > m.Newest {
		return r, false
	}
	for _, one := range m.Runs {
		if one.Segment <= segment {
			r, ok = one, true
		}
	}
	return r, ok
}

// giveUp records that segments do not exist.
func (m *Manifest) giveUp(first, last uint64) {
	all := append(slices.Clone(m.Absent), Range{first, last})
	slices.SortFunc(all, func(a, b Range) int {
		if a.First < b.First {
			return -1
		}
		return 1
	})
	m.Absent = all[:1]
	for _, a := range all[1:] {
		last := &m.Absent[len(m.Absent)-1]
		if a.First > last.Last+1 {
			m.Absent = append(m.Absent, a)
			continue
		}
		last.Last = max(last.Last, a.Last)
	}
}

// Forget records that segments before oldest are removed.
func (m *Manifest) Forget(oldest uint64) {
	m.Oldest = min(max(m.Oldest, oldest), m.Newest+1)
	m.Absent = slices.DeleteFunc(slices.Clone(m.Absent), func(a Range) bool { return a.Last < m.Oldest })
}

// Begin records that a run began a segment, which is then the newest. Skipped numbers have no
// segment.
func (m *Manifest) Begin(segment uint64, r Run) {
	if segment > m.Newest+1 && m.Newest >= m.Oldest {
		m.giveUp(m.Newest+1, segment-1)
	}
	if m.Newest < m.Oldest {
		m.Oldest = segment
	}
	m.Newest = max(m.Newest, segment)
	if n := len(m.Runs); n == 0 || m.Runs[n-1].Number != r.Number {
		r.Segment = segment
		m.Runs = append(newest(slices.Clone(m.Runs), mostRuns-1), r)
	}
}

// Expect records that a run will begin with a segment. Records of earlier runs from its start on are
// void from now on, although the run has no segment yet.
func (m *Manifest) Expect(segment uint64, r Run) {
	runs := slices.Clone(m.Runs)
	for n := len(runs); n > 0 && runs[n-1].Segment > m.Newest && runs[n-1].Start >= r.Start; n-- {
		runs = runs[:n-1] // it has neither segments nor records, and made nothing void that this one does not
	}
	r.Segment = segment
	m.Runs = append(newest(runs, mostRuns-1), r)
}
