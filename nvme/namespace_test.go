package nvme

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// TestIdentifyData: identify data that the test makes from the specification is parsed correctly.
func TestIdentifyData(t *testing.T) {
	var b [identifySize]byte
	binary.LittleEndian.PutUint64(b[0:], 1<<24) // NSZE
	b[26] = 1<<5 | 2                            // FLBAS: format 18
	binary.LittleEndian.PutUint32(b[128+4*18:], 12<<16|8)
	if got := parseNamespace(b[:]); got != (namespaceData{blocks: 1 << 24, shift: 12, metadata: 8}) {
		t.Errorf("%+v", got)
	}
	clear(b[:])
	b[77], b[520], b[525] = 7, 0x0c, 1
	if got := parseController(b[:]); got != (controllerData{mdts: 7, optional: optionalDataset | optionalZeroes, cache: true}) {
		t.Errorf("%+v", got)
	}
}

// TestFormats: valid formats are accepted, and invalid ones that disks may report are refused.
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		ns   namespaceData
		ctrl controllerData
		want string // text of the error; empty: none
	}{
		{namespaceData{1 << 20, 9, 0}, controllerData{mdts: 5}, ""},
		{namespaceData{1 << 20, 12, 8}, controllerData{}, "8 bytes of metadata"},
		{namespaceData{1 << 20, 8, 0}, controllerData{}, "cannot be"},
		{namespaceData{1 << 60, 12, 0}, controllerData{}, "cannot be"},
		{namespaceData{1 << 20, 64, 0}, controllerData{}, "cannot be"},
	} {
		to := &Target{node: &namespace{claim: -1}}
		err := to.setFormat(1, c.ns, c.ctrl)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.ns, err)
		}
		if err != nil {
			continue
		}
		if err := to.limitTransfer(); err != nil || to.node.transfer != 128<<10 || to.Size() != 512<<20 || to.align.Offset != 512 {
			t.Errorf("%+v: %v, %+v, %+v", c.ns, err, to, to.node)
		}
	}
}

// TestStatuses: a disk's status becomes the right errno in frames and the right text for people.
func TestStatuses(t *testing.T) {
	for s, want := range map[Status]unix.Errno{0x080: unix.ENOSPC, 0x281: unix.EIO, 0x020: unix.EROFS, 0x001: unix.EOPNOTSUPP, 0x7ff: unix.EIO} {
		if s.errno() != want || !errors.Is(s, want) || !strings.Contains(s.Error(), "NVMe status") {
			t.Errorf("%v is %v", s, s.errno())
		}
	}
}

// TestPieces: chains are cut where a disk's boundary, its number of segments or its largest
// transfer requires it.
func TestPieces(t *testing.T) {
	const stride = 4096
	r := newRig(t, umem.Config{}, Config{})
	for _, c := range []struct {
		name   string
		length uint32 // of each of four frames
		done   uint64
		most   uint64
		limits Limits
		want   []uint64 // lengths of the pieces
	}{
		{"whole frames are one", 4096, 0, 1 << 20, Limits{Boundary: 4096, Segments: 1}, []uint64{16384}},
		{"gaps", 1536, 0, 1 << 20, Limits{Boundary: 4096, Segments: 8}, []uint64{1536}},
		{"gaps gathered", 1536, 0, 1 << 20, Limits{Boundary: 1, Segments: 8}, []uint64{1536, 1536, 1536, 1536}},
		{"few segments", 1536, 0, 1 << 20, Limits{Boundary: 1, Segments: 3}, []uint64{1536, 1536, 1536}},
		{"small transfer", 4096, 0, 8192, Limits{Boundary: 1, Segments: 8}, []uint64{8192}},
		{"second command", 4096, 8192, 4096, Limits{Boundary: 1, Segments: 8}, []uint64{4096}},
		{"in a frame", 1536, 2048, 1 << 20, Limits{Boundary: 1, Segments: 8}, []uint64{1024, 1536, 1536}},
	} {
		o := &r.queue.ops[0]
		o.count, o.done = 4, c.done
		for k := range uint64(4) {
			r.queue.frames[k] = umem.Frame{Addr: k * stride, Len: c.length}
		}
		var got []uint64
		for _, v := range r.queue.piecesOf(0, c.most, &c.limits) {
			got = append(got, v.len)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		r.queue.ops[0] = op{}
	}
}
