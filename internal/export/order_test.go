package export

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestOrder: order sorts packets by time if they are out of order by less than a second. Packets of one time
// stay in their order. The memory is bounded. A packet that comes later than that is counted and written.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var out bytes.Buffer
		o := order{w: &out}
		size := rapid.SampledFrom([]int{16, 1000, 200_000}).Draw(t, "size")
		block := make([]byte, size)
		now, times := uint64(1e18), []uint64{}
		for i := range rapid.IntRange(0, 400).Draw(t, "packets") {
			now += rapid.SampledFrom([]uint64{0, 1000, 1e6, slack}).Draw(t, "later")
			time := now - rapid.Uint64Range(0, min(1e6, slack)).Draw(t, "behind")
			times = append(times, time)
			binary.LittleEndian.PutUint64(block, time)
			binary.LittleEndian.PutUint64(block[8:], uint64(i))
			if err := o.add(time, block); err != nil {
				t.Fatal(err)
			}
			if len(o.blocks) > orderLimit+orderStep+size {
				t.Fatalf("%d bytes are kept", len(o.blocks))
			}
		}
		if err := o.flush(); err != nil {
			t.Fatal(err)
		}
		if out.Len() != len(times)*size {
			t.Fatalf("%d packets are written, %d came", out.Len()/size, len(times))
		}
		last, late := [2]uint64{}, uint64(0)
		for b := out.Bytes(); len(b) > 0; b = b[size:] {
			at := [2]uint64{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
			if slices.Compare(at[:], last[:]) < 0 {
				late++
			}
			last = at
		}
		if late != o.late || size < 200_000 && late > 0 {
			t.Fatalf("%d are out of order, and %d are counted", late, o.late)
		}
	})
}

// TestOrderCountsLate: a packet that is older than one already written is written and counted.
func TestOrderCountsLate(t *testing.T) {
	var out bytes.Buffer
	o := order{w: &out}
	block := make([]byte, orderStep/4)
	for _, time := range []uint64{10 * slack, 20 * slack, 30 * slack, 40 * slack, 50 * slack, 5 * slack, 60 * slack} {
		binary.LittleEndian.PutUint64(block, time)
		if err := o.add(time, block); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.flush(); err != nil || o.late != 1 || out.Len() != 7*len(block) {
		t.Errorf("%d late, %d bytes: %v", o.late, out.Len(), err)
	}
}
