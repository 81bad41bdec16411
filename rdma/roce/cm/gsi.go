package cm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
	"github.com/unifiedd/unifiedd/umem"
)

// gsiQP is queue pair 1 (the general services interface) with its memory. It belongs to the
// manager's goroutine, except for the handle cache.
type gsiQP struct {
	device  *roce.Device
	handles handleCache
	memory  rdma.MemoryRegion
	cq      rdma.CompletionQueue
	qp      rdma.QueuePair
	book    *umem.Book
	holder  *umem.Holder
	frames  []umem.Frame
	undo    []func() error

	done    [64]rdma.WorkCompletion
	posted  map[uint64]*cachedHandle // of messages being sent
	sent    uint64
	waiting []*cachedHandle // with messages that wait for their lookup
	table   []rdma.GIDEntry
	read    time.Time // when the GID table was read
}

const (
	slotBytes = 320 // of a receive: the network header and a message
	slots     = 256
	sends     = 64
)

// openGSI makes queue pair 1 of a device.
func openGSI(d *roce.Device, news func()) (m *gsiQP, err error) {
	m = &gsiQP{device: d, posted: map[uint64]*cachedHandle{}, handles: newHandleCache(d, news)}
	if err := m.open(); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *gsiQP) open() (err error) {
	if m.handles.domain, err = keep(m, m.device.NewProtectionDomain); err != nil {
		return err
	}
	if err := m.takeFrames(); err != nil {
		return err
	}
	region := m.device.Region()
	if m.memory, err = keep(m, func() (rdma.MemoryRegion, error) { return m.handles.domain.Register(region, rdma.LocalWrite) }); err != nil {
		return err
	}
	m.cq, err = keep(m, func() (rdma.CompletionQueue, error) {
		return m.device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: slots + sends, Events: true})
	})
	if err != nil {
		return err
	}
	m.qp, err = keep(m, func() (rdma.QueuePair, error) {
		return m.device.NewManagementQueuePair(m.handles.domain, rdma.QueuePairConfig{Transport: rdma.UD, SendCQ: m.cq, ReceiveCQ: m.cq, SendDepth: sends, RecvDepth: slots,
			InlineBytes: mad.Size})
	})
	if err != nil {
		return err
	}
	m.undo = append(m.undo, m.handles.close)
	return m.bringUp()
}

// keep makes an object that close closes.
func keep[T interface{ Close() error }](m *gsiQP, f func() (T, error)) (T, error) {
	thing, err := f()
	if err == nil {
		m.undo = append(m.undo, thing.Close)
	}
	return thing, err
}

// Frames returns how many frames of size bytes a manager takes from the region.
func Frames(size int) int {
	return slots/(size/slotBytes) + 1 // with room for a message to be sent
}

// takeFrames takes the memory of receives.
func (m *gsiQP) takeFrames() (err error) {
	region := m.device.Region()
	m.book = region.NewBook("connection manager of " + m.device.Name())
	m.undo = append(m.undo, m.book.Close)
	if m.holder, err = m.book.NewHolder(umem.OwnerRDMA, "connection manager of "+m.device.Name()); err != nil {
		return err
	}
	m.frames = make([]umem.Frame, Frames(int(region.FrameSize())))
	n := m.holder.Take(m.frames)
	m.undo = append(m.undo, func() error { m.holder.Give(m.frames[:n]); return nil })
	if n < len(m.frames) {
		return fmt.Errorf("the region has %d of %d frames that the connection manager needs: make it larger", n, len(m.frames))
	}
	return nil
}

// slot returns the address of a receive.
func (m *gsiQP) slot(i uint64) uint64 {
	each := uint64(m.device.Region().FrameSize() / slotBytes)
	return m.frames[i/each].Addr + i%each*slotBytes
}

// bringUp brings the queue pair to RTS.
func (m *gsiQP) bringUp() error {
	a := rdma.Attributes{Port: 1, QKey: mad.QKey, State: rdma.Init}
	if err := m.qp.Modify(a, rdma.MaskState|rdma.MaskPKeyIndex|rdma.MaskPort|rdma.MaskQKey); err != nil {
		return err
	}
	for i := range uint64(slots) {
		if err := m.expect(i); err != nil {
			return err
		}
	}
	a.State = rdma.ReadyToReceive
	if err := m.qp.Modify(a, rdma.MaskState); err != nil {
		return err
	}
	return m.resume()
}

// resume brings the queue pair to RTS again after a message could not be sent.
func (m *gsiQP) resume() error {
	return m.qp.Modify(rdma.Attributes{State: rdma.ReadyToSend}, rdma.MaskState|m.firstPSN())
}

// firstPSN returns the mask for the PSN of sends, which Modify requires only the first time.
func (m *gsiQP) firstPSN() rdma.Mask {
	if s, _ := m.qp.State(); s == rdma.ReadyToReceive {
		return rdma.MaskSendPSN
	}
	return 0
}

func (m *gsiQP) expect(i uint64) error {
	sge := rdma.SGE{Addr: m.slot(i), Length: slotBytes, LKey: m.memory.LKey()}
	_, err := m.qp.PostReceive([]rdma.ReceiveRequest{{ID: i | isReceive, SGEs: 1}}, []rdma.SGE{sge})
	return err
}

// isReceive marks the IDs of receives.
const isReceive = 1 << 63

// close releases everything in reverse order.
func (m *gsiQP) close() error {
	var errs []error
	for len(m.undo) > 0 {
		last := len(m.undo) - 1
		errs = append(errs, m.undo[last]())
		m.undo = m.undo[:last]
	}
	return errors.Join(errs...)
}

// tableAge is the age of the GID table after which it is read again for an unknown address.
const tableAge = 100 * time.Millisecond

// pathOf reads the addresses of a message from its network header; ok is false if the destination is
// not one of ours.
func (m *gsiQP) pathOf(grh []byte) (w peerPath, ok bool) {
	if grh[0]>>4 == 6 {
		w.remote, w.local = rdma.GID(grh[8:24]), rdma.GID(grh[24:40])
	} else {
		w.remote, w.local = mapped(grh[32:36]), mapped(grh[36:40])
	}
	place, ok := m.place(w.local)
	if !ok && time.Since(m.read) > tableAge {
		if table, err := m.device.GIDs(1); err == nil {
			m.table, m.read = table, time.Now()
		}
		place, ok = m.place(w.local)
	}
	w.place = place
	return w, ok
}

// mapped returns the GID of an IPv4 address.
func mapped(b []byte) (g rdma.GID) {
	g[10], g[11] = 0xff, 0xff
	copy(g[12:], b)
	return g
}

func (m *gsiQP) place(g rdma.GID) (uint16, bool) {
	for _, e := range m.table {
		if e.GID == g {
			return uint16(e.Index), true
		}
	}
	return 0, false
}

// take passes on received messages, and records which messages were sent. It reports whether there
// was anything.
func (m *gsiQP) take(to recipient) (some bool, err error) {
	for {
		n, err := m.cq.Poll(m.done[:])
		if n == 0 || err != nil {
			return some, err
		}
		some = true
		for i := range m.done[:n] {
			if err := m.completed(&m.done[i], to); err != nil {
				return some, err
			}
		}
	}
}

func (m *gsiQP) completed(c *rdma.WorkCompletion, to recipient) error {
	if c.ID&isReceive == 0 {
		m.handles.mu.Lock()
		m.posted[c.ID].sending--
		m.handles.mu.Unlock()
		delete(m.posted, c.ID)
		if s, _ := m.qp.State(); s == rdma.SendError {
			return m.resume()
		}
		return nil
	}
	if c.Status != rdma.Success {
		return nil // the queue pair is being closed
	}
	i := c.ID &^ isReceive
	b := m.device.Region().At(m.slot(i), uint64(c.Length))
	w, ok := m.pathOf(b)
	if ok && c.RemoteQPN == mad.QueuePair {
		m.arrive(w, b[rdma.GRHBytes:], to)
	} else {
		to.dropped(otherSource)
	}
	return m.expect(i)
}

// recipient receives messages, and counts those that are lost.
type recipient interface {
	came(w peerPath, b []byte)
	dropped(why counter)
}

// arrive passes on a message once the address of its sender is resolved. It drops the message if
// the address cannot be resolved, because the manager could not answer it.
func (m *gsiQP) arrive(w peerPath, b []byte, to recipient) {
	l, err := m.handles.find(w, false)
	switch {
	case err != nil:
		to.dropped(unreachable)
	case !l.isFound():
		if len(l.arrived) >= maxPending {
			to.dropped(unreachable)
			return
		}
		m.awaits(l)
		m.handles.mu.Lock()
		l.arrived = append(l.arrived, slices.Clone(b))
		m.handles.mu.Unlock()
	case l.err != nil:
		to.dropped(unreachable)
	default:
		to.came(w, b)
	}
}

// awaits makes release check a handle until its lookup ends.
func (m *gsiQP) awaits(l *cachedHandle) {
	if len(l.pending)+len(l.arrived) == 0 {
		m.waiting = append(m.waiting, l)
	}
}

// send sends a message once the address is resolved. It reports whether there was room. It calls
// to.dropped if the address cannot be resolved.
func (m *gsiQP) send(d *datagram, to recipient) bool {
	if len(m.posted) >= sends {
		return false
	}
	l, err := m.handles.find(d.path, false)
	switch {
	case err != nil:
		to.dropped(unresolved)
	case !l.isFound():
		m.hold(l, d, to)
	case l.err != nil:
		to.dropped(unresolved)
	default:
		return m.post(l, d)
	}
	return true
}

// hold keeps a message until the lookup ends.
func (m *gsiQP) hold(l *cachedHandle, d *datagram, to recipient) {
	if len(l.pending) >= maxPending {
		to.dropped(unresolved)
		return
	}
	m.awaits(l)
	m.handles.mu.Lock()
	l.pending = append(l.pending, *d)
	m.handles.mu.Unlock()
}

// post posts a message.
func (m *gsiQP) post(l *cachedHandle, d *datagram) bool {
	m.sent++
	r := rdma.SendRequest{ID: m.sent &^ isReceive, Op: rdma.Send, Flags: rdma.Signaled | rdma.Inline, SGEs: 1, RemoteQPN: mad.QueuePair, RemoteQKey: mad.QKey,
		Handle: l.handle.ID()}
	at := m.slot(slots) // after the receives
	copy(m.device.Region().At(at, mad.Size), d.bytes[:])
	if n, _ := m.qp.PostSend([]rdma.SendRequest{r}, []rdma.SGE{{Addr: at, Length: mad.Size, LKey: m.memory.LKey()}}); n < 1 {
		return false
	}
	m.handles.mu.Lock()
	l.sending++
	m.handles.mu.Unlock()
	m.posted[r.ID] = l
	return true
}

// release passes on the received messages whose lookups have ended, and sends those that waited.
func (m *gsiQP) release(to recipient) {
	left := m.waiting[:0]
	for _, l := range m.waiting {
		if !l.isFound() {
			left = append(left, l)
			continue
		}
		for _, b := range l.arrived {
			if l.err != nil {
				to.dropped(unreachable)
			} else {
				to.came(l.path, b)
			}
		}
		for i := range l.pending {
			if l.err != nil || len(m.posted) >= sends || !m.post(l, &l.pending[i]) {
				to.dropped(unresolved)
			}
		}
		m.handles.mu.Lock()
		l.arrived, l.pending = nil, nil
		m.handles.mu.Unlock()
	}
	clear(m.waiting[len(left):])
	m.waiting = left
}
