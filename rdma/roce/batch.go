package roce

import "github.com/unifiedd/unifiedd/rdma"

var _ rdma.Batcher = (*Device)(nil)

// Begin and End are those of rdma.Batcher. Who finds something to do meanwhile without posting may send what waits.
func (d *Device) Begin() { d.batches.Add(1) }

// End sends also where others have not ended yet.
func (d *Device) End() {
	d.batches.Add(-1)
	if d.batched.Swap(false) || d.owes.Load() {
		d.progress(posting)
	}
}

// joins says whether what was just posted waits for an End. One that comes between the two looks is seen here, or sees the mark.
func (d *Device) joins() bool {
	if d.batches.Load() == 0 {
		return false
	}
	d.batched.Store(true)
	return d.batches.Load() > 0
}

// several says whether more than one packet has come to a queue.
func (m *datapath) several() bool {
	for _, q := range m.queues {
		if _, ok := q.port.Peek(q.looked + 1); ok {
			return true
		}
	}
	return false
}

// defersACK sets an acknowledgement aside that came with one other packet, and says whether it has.
func (m *datapath) defersACK() bool {
	for _, q := range m.queues {
		if m.deferACK(q) {
			return !m.several()
		}
	}
	return false
}

// answer sends what is owed, unless more has come already, which is taken first: then one call of the kernel is for the acknowledgements of all
// of it. That happens once in a row.
func (m *datapath) answer(several bool) {
	if m.owes && (m.late || !several) {
		m.send()
	}
	m.late = m.owes
}
