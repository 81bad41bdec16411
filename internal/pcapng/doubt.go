package pcapng

// maxDoubts bounds the batches that are counted separately. A writer has far fewer in flight.
const maxDoubts = 4096

// doubts counts the packets of batches that no mark so far has declared durable.
type doubts struct {
	batches []doubt // in file order
	packets uint64
}

type doubt struct{ end, packets uint64 }

// add adds a batch that ends at the file offset end. If there are too many, the last ones are counted as one.
func (d *doubts) add(end, packets uint64) {
	d.packets += packets
	if len(d.batches) < maxDoubts {
		d.batches = append(d.batches, doubt{end, packets})
		return
	}
	last := &d.batches[len(d.batches)-1]
	last.end, last.packets = end, last.packets+packets
}

// settle forgets the batches that end at or below the offset durable.
func (d *doubts) settle(durable uint64) {
	for len(d.batches) > 0 && d.batches[0].end <= durable {
		d.packets -= d.batches[0].packets
		d.batches = d.batches[1:]
	}
}
