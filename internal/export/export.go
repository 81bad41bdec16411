package export

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/need"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
)

// Select says which packets to export. The zero value selects all of them.
type Select struct {
	From, To uint64    // nanoseconds since the epoch: from on, and before; 0: no bound
	Filter   Filter    // nil: every packet
	Need     need.Need // the need of Filter for Ethernet frames, for an index
}

// Match reports whether a packet of that length is wanted. packet is the captured part, and must
// not be retained.
type Match func(packet []byte, length int) bool

// Filter returns the Match for packets of a link type, or an error with the reason why there is
// none.
type Filter func(of linktype.Type) (Match, error)

func (e *Exporter) wants(p *pcapng.Packet) bool {
	s := &e.want
	return p.Time >= s.From && (s.To == 0 || p.Time < s.To) && (e.match == nil || e.match(p.Data, int(p.OrigLen)))
}

// Summary is the result of an export.
type Summary struct {
	Segments    uint64 // read
	Batches     uint64 // read
	Skipped     uint64 // batches that are not whole: being written, or lost in a crash
	Overwritten uint64 // segments that were overwritten while they were read, or before
	Unreadable  uint64 // segments whose heads cannot be read
	Outside     uint64 // segments that were not read, since they lie before or after the times asked for
	Indexed     uint64 // segments of which an index selected the parts to read
	PassedOver  uint64 // batches of those that were not read
	BadIndexes  uint64 // segments that were read whole, since their index is stale or damaged
	WhyBad      error  // of the first of them
	Seen        uint64 // packets
	Packets     uint64 // written
	Bytes       uint64 // of those packets
	Late        uint64 // packets that are not where their time is, since later ones were written already
	First, Last uint64 // time of the earliest and the latest packet written, in nanoseconds since the epoch
}

// Exporter writes one file. It belongs to one goroutine.
type Exporter struct {
	w          *bufio.Writer
	want       Select
	match      Match             // for packets of the link type of the first interface; nil: every packet
	interfaces map[string]uint32 // in the output, by their description block
	kind       []byte            // link type and snapshot length of the first
	local      []uint32          // of the segment being read, as numbered in the output
	begun      bool
	order      order // for packets of several queues or interfaces
	mixed      bool  // the present segment has several
	block      []byte
	sum        Summary
}

// New returns an exporter that writes to w.
func New(w io.Writer, s Select) *Exporter {
	out := bufio.NewWriterSize(w, 1<<20)
	return &Exporter{w: out, want: s, interfaces: map[string]uint32{}, order: order{w: out}}
}

// Begun reports whether there is anything to write: the head of a file at least.
func (e *Exporter) Begun() bool { return e.begun }

// Close writes the buffered packets, and returns the summary.
func (e *Exporter) Close() (Summary, error) {
	err := e.order.flush()
	e.sum.Late = e.order.late
	return e.sum, errors.Join(err, e.w.Flush())
}

// AddRing exports the segments of a ring, oldest first.
func (e *Exporter) AddRing(f io.ReaderAt, r ring.Ring) error {
	all, err := r.Generations(f)
	if err != nil {
		return err
	}
	damaged, err := r.Damaged(f, all, 0, 0)
	if err != nil {
		return err
	}
	e.sum.Unreadable += uint64(len(damaged))
	if all, err = e.inside(f, r, all); err != nil {
		return err
	}
	for _, g := range all {
		if err := e.addSlot(f, r, g); err != nil {
			return fmt.Errorf("segment %d: %w", g, err)
		}
	}
	return nil
}

// addSlot exports one segment of a ring.
func (e *Exporter) addSlot(f io.ReaderAt, r ring.Ring, generation uint64) error {
	head, err := r.Head(f, generation)
	if err == nil {
		err = e.begin(head)
	}
	if err == nil {
		var report pcapng.Report
		report, err = r.Read(f, generation, e.batch)
		e.count(report)
	}
	if errors.Is(err, ring.ErrOverwritten) {
		e.sum.Overwritten++
		return nil
	}
	return err
}

// AddSegment exports a segment file of size bytes.
func (e *Exporter) AddSegment(f io.ReaderAt, size int64) error {
	outside, err := e.fileOutside(f, size)
	if outside || err != nil {
		return err
	}
	if err := e.beginSegment(f, size); err != nil {
		return err
	}
	report, err := pcapng.Read(f, size, pcapng.Options{}, e.batch)
	e.count(report)
	return err
}

func (e *Exporter) beginSegment(f io.ReaderAt, size int64) error {
	head, err := pcapng.ReadHead(f, size)
	if err == nil {
		err = e.begin(head)
	}
	return err
}

// count adds the report of a segment. A torn batch also counts as missing if a later one is whole.
func (e *Exporter) count(r pcapng.Report) {
	e.sum.Segments++
	e.sum.Batches += r.Batches
	e.sum.Skipped += max(r.MissingBatches, r.Torn)
}

var errKinds = errors.New("its link type or snapshot length is not that of the segments before, which one file cannot have (export it apart)")

// begin writes the parts of a segment's head that the output does not have yet.
func (e *Exporter) begin(head pcapng.Head) error {
	if !e.begun {
		if err := e.compile(linkOf(head.Interfaces[0])); err != nil {
			return err
		}
		e.begun = true
		if _, err := e.w.Write(head.Section); err != nil {
			return err
		}
		e.kind = kindOf(head.Interfaces[0])
	}
	e.local = e.local[:0]
	for _, raw := range head.Interfaces {
		if string(kindOf(raw)) != string(e.kind) {
			return errKinds
		}
		number, ok := e.interfaces[string(raw)]
		if !ok {
			number = uint32(len(e.interfaces))
			e.interfaces[string(raw)] = number
			if _, err := e.w.Write(raw); err != nil {
				return err
			}
		}
		e.local = append(e.local, number)
	}
	if e.mixed = mixed(&head); !e.mixed {
		return e.order.flush()
	}
	return nil
}

// compile compiles the filter for packets of a link type.
func (e *Exporter) compile(of linktype.Type) (err error) {
	if e.want.Filter != nil {
		e.match, err = e.want.Filter(of)
	}
	return err
}

// linkOf returns the link type in an Interface Description Block.
func linkOf(raw []byte) linktype.Type { return linktype.Type(binary.LittleEndian.Uint16(raw[8:])) }

// kindOf returns the link type and the snapshot length in an Interface Description Block.
func kindOf(raw []byte) []byte { return raw[8:16] }

// batch writes the wanted packets of a batch.
func (e *Exporter) batch(_ pcapng.Batch, data []byte) error {
	return pcapng.EachPacket(data, func(p pcapng.Packet) error {
		e.sum.Seen++
		if !e.wants(&p) {
			return nil
		}
		return e.write(&p)
	})
}

func (e *Exporter) write(p *pcapng.Packet) error {
	n := pcapng.PacketBlockLen(uint32(len(p.Data)), 4)
	if cap(e.block) < int(n) {
		e.block = make([]byte, n)
	}
	e.block = e.block[:n]
	pcapng.PutPacket(e.block, e.local[p.Interface], p.Time, p.Data, p.OrigLen, n)
	e.sum.Packets++
	e.sum.Bytes += uint64(len(p.Data))
	if e.sum.First == 0 || p.Time < e.sum.First {
		e.sum.First = p.Time
	}
	e.sum.Last = max(e.sum.Last, p.Time)
	if e.mixed {
		return e.order.add(p.Time, e.block)
	}
	_, err := e.w.Write(e.block)
	return err
}
