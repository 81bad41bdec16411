package nvmet

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// place names a namespace.
type place struct {
	Subsystem string
	Namespace uint32
}

// MarshalText encodes a place as a key of JSON.
func (p place) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d %s", p.Namespace, p.Subsystem), nil
}

// UnmarshalText decodes a key.
func (p *place) UnmarshalText(b []byte) error {
	id, nqn, ok := strings.Cut(string(b), " ")
	_, err := fmt.Sscanf(id, "%d", &p.Namespace)
	p.Subsystem = nqn
	if err != nil || !ok || !fabrics.ValidNQN(nqn) || p.Namespace < 1 || p.Namespace > fabrics.MaxNamespace {
		return fmt.Errorf("%q names no namespace", b)
	}
	return nil
}

// record is the state of all namespaces of a file, after one change.
type record struct {
	Number  uint64
	Boot    string // of the machine
	Places  map[place]*fabrics.Reservations
	Notices []told // of the last changes, the newest last
}

// told is a notice of a change.
type told struct {
	Number uint64 // of the change
	Place  place
	Notice fabrics.Notice
}

// The file has a page and two areas for records. The newest record that is whole counts.
const (
	areaLen    = 1 << 20
	fileLen    = keeperPage + 2*areaLen
	areaHeader = 24
	recordID   = "UFDRSV01"
	maxTold    = 4 * fabrics.MaxRegistrants
)

func (r *record) clone() *record {
	c := *r
	c.Places = make(map[place]*fabrics.Reservations, len(r.Places))
	for at, one := range r.Places {
		c.Places[at] = one.Clone()
	}
	c.Notices = append([]told(nil), r.Notices...)
	return &c
}

// tell adds the notices of a change, and forgets the oldest.
func (r *record) tell(at place, notices []fabrics.Notice) {
	for _, n := range notices {
		r.Notices = append(r.Notices, told{r.Number, at, n})
	}
	r.Notices = r.Notices[max(0, len(r.Notices)-maxTold):]
}

// encode returns the record as an area has it.
func (r *record) encode() ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(body) > areaLen-areaHeader {
		return nil, fmt.Errorf("the reservations have %d bytes; at most %d are possible", len(body), areaLen-areaHeader)
	}
	return seal(body, r.Number), nil
}

// seal puts the header before a body: a name, a checksum of the rest, the length and the number.
func seal(body []byte, number uint64) []byte {
	b := make([]byte, areaHeader, areaHeader+len(body))
	copy(b, recordID)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(body)))
	binary.LittleEndian.PutUint64(b[16:], number)
	b = append(b, body...)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	return b
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fits reports why a record cannot be written.
func (r *record) fits() error {
	_, err := r.encode()
	return err
}

// decodeRecord decodes an area. It returns nil if the area has no whole record, and an error if the
// record is whole and makes no sense.
func decodeRecord(b []byte) (*record, error) {
	if len(b) < areaHeader || string(b[:8]) != recordID {
		return nil, nil
	}
	n := binary.LittleEndian.Uint32(b[12:])
	if uint64(n) > uint64(len(b)-areaHeader) || crc32.Checksum(b[12:areaHeader+n], castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return nil, nil
	}
	r := &record{}
	d := json.NewDecoder(bytes.NewReader(b[areaHeader : areaHeader+n]))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, fmt.Errorf("%w: %w", errOther, err)
	}
	if r.Number != binary.LittleEndian.Uint64(b[16:]) || len(r.Notices) > maxTold {
		return nil, errOther
	}
	for at, one := range r.Places {
		if one == nil {
			return nil, fmt.Errorf("%w: namespace %d of %s has none", errOther, at.Namespace, at.Subsystem)
		}
		if err := one.Check(); err != nil {
			return nil, fmt.Errorf("%w: namespace %d of %s: %w", errOther, at.Namespace, at.Subsystem, err)
		}
	}
	if r.Places == nil {
		r.Places = map[place]*fabrics.Reservations{}
	}
	return r, nil
}

// readRecord reads the newest record. A new file has one with the number 0.
func readRecord(f *os.File) (*record, error) {
	newest := (*record)(nil)
	empty := true
	for i := range int64(2) {
		b := make([]byte, areaLen)
		if _, err := f.ReadAt(b, keeperPage+i*areaLen); err != nil {
			return nil, fmt.Errorf("read it: %w", err)
		}
		empty = empty && bytes.Count(b, []byte{0}) == len(b)
		r, err := decodeRecord(b)
		if err != nil {
			return nil, err
		}
		if r != nil && (newest == nil || r.Number > newest.Number) {
			newest = r
		}
	}
	switch {
	case newest != nil:
		return newest, nil
	case !empty:
		return nil, errDamaged
	}
	return &record{Places: map[place]*fabrics.Reservations{}}, nil
}

// errDamaged says that no record can be read.
var errDamaged = errors.New("both records in it are damaged: hosts may write again that were shut out; if that is right, remove it, and the hosts register again")

// writeRecord writes a record over the older one, and waits until it is durable.
func writeRecord(f *os.File, r *record) error {
	b, err := r.encode()
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(b, keeperPage+int64(r.Number%2)*areaLen); err != nil {
		return fmt.Errorf("write to it: %w", err)
	}
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return fmt.Errorf("flush it: %w", err)
	}
	return nil
}

// bootID identifies the time since the machine has started.
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // then every start of the machine looks like the same
	}
	return strings.TrimSpace(string(b))
})

// remote are file systems of several machines, whose locks and memory are not those of one.
var remote = map[int64]string{0x6969: "NFS", 0x517b: "SMB", 0xfe534d42: "SMB", 0xff534d42: "CIFS", 0x65735546: "FUSE", 0x00c36400: "Ceph", 0x01021997: "9P", 0x01161970: "GFS2", 0x7461636f: "OCFS2", 0x0bd00bd0: "Lustre"}

// localFile refuses a file that other machines may have open.
func localFile(f *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	if name, is := remote[int64(uint32(st.Type))]; is {
		return fmt.Errorf("it is on %s, and daemons on several machines cannot share reservations: use a file system of this machine", name)
	}
	return nil
}

// of returns the state of a namespace.
func (r *record) of(at place) *fabrics.Reservations {
	if one := r.Places[at]; one != nil {
		return one
	}
	return &noReservations
}

// noReservations is the state of a namespace with which no host has registered. Nobody changes it.
var noReservations fabrics.Reservations
