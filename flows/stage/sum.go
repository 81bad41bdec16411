package stage

import (
	"encoding/binary"
	"fmt"
	"math"
)

var le = binary.LittleEndian

// Type is the type of a message's elements. They are little-endian, one after the other.
type Type string

// The types. Integers wrap around; floats are rounded once per addition (IEEE 754), so that their sum depends
// on the order in which messages are added.
const (
	Int32   Type = "int32"
	Int64   Type = "int64"
	Float32 Type = "float32"
	Float64 Type = "float64"
)

// Size is how many bytes an element has; 0 for an unknown type.
func (t Type) Size() int {
	switch t {
	case Int32, Float32:
		return 4
	case Int64, Float64:
		return 8
	}
	return 0
}

// Sum adds messages to each other, element by element. Make it with [NewSum].
type Sum struct {
	of     Type
	counts counters
}

// NewSum makes a sum of messages with elements of this type.
func NewSum(of Type) (*Sum, error) {
	if of.Size() == 0 {
		return nil, fmt.Errorf("sum: type %q is not one of %s, %s, %s, %s", of, Int32, Int64, Float32, Float64)
	}
	return &Sum{of: of}, nil
}

// Whole reports whether a message has whole elements only. If it does not, Whole counts that.
func (s *Sum) Whole(message []byte) bool {
	if len(message)%s.of.Size() != 0 {
		s.counts.count(BrokenElement)
		return false
	}
	return true
}

// Add adds each element of src to that of dst. If the lengths differ, or the last element is cut off, Add
// changes nothing, counts the reason and returns false. If messages have several frames, each frame must have
// whole elements.
func (s *Sum) Add(dst, src []byte) bool {
	if len(dst) != len(src) {
		s.counts.count(OtherLength)
		return false
	}
	if !s.Whole(dst) {
		return false
	}
	switch s.of {
	case Int32:
		addInt32(dst, src)
	case Int64:
		addInt64(dst, src)
	case Float32:
		addFloat32(dst, src)
	case Float64:
		addFloat64(dst, src)
	}
	s.counts.count(Changed)
	return true
}

// Stats say how many messages were added. Any goroutine may call it.
func (s *Sum) Stats() StepStats { return s.counts.stats("sum") }

func addInt32(dst, src []byte) {
	for len(dst) >= 4 && len(src) >= 4 {
		le.PutUint32(dst, le.Uint32(dst)+le.Uint32(src))
		dst, src = dst[4:], src[4:]
	}
}

func addInt64(dst, src []byte) {
	for len(dst) >= 8 && len(src) >= 8 {
		le.PutUint64(dst, le.Uint64(dst)+le.Uint64(src))
		dst, src = dst[8:], src[8:]
	}
}

func addFloat32(dst, src []byte) {
	for len(dst) >= 4 && len(src) >= 4 {
		le.PutUint32(dst, math.Float32bits(math.Float32frombits(le.Uint32(dst))+math.Float32frombits(le.Uint32(src))))
		dst, src = dst[4:], src[4:]
	}
}

func addFloat64(dst, src []byte) {
	for len(dst) >= 8 && len(src) >= 8 {
		le.PutUint64(dst, math.Float64bits(math.Float64frombits(le.Uint64(dst))+math.Float64frombits(le.Uint64(src))))
		dst, src = dst[8:], src[8:]
	}
}
