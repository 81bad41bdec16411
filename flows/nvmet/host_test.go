package nvmet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
)

// message is a command that a host sends, valid or not.
type message struct {
	opcode, flags, fabrics uint8 // flags 0: an SGL, and not fused
	namespace              uint32
	data                   fabrics.Data
	descriptor             []byte // instead of data: an arbitrary descriptor
	words                  [6]uint32
	inside                 []byte // data after the command
}

// append appends the encoded command.
func (c *message) append(b []byte, id uint16) []byte {
	start := len(b)
	b = append(b, make([]byte, fabrics.CommandLen)...)
	e, le := b[start:], binary.LittleEndian
	e[0], e[1] = c.opcode, c.flags
	if c.flags == 0 {
		e[1] = 0x40
	}
	le.PutUint16(e[2:], id)
	le.PutUint32(e[4:], c.namespace)
	if c.opcode == fabrics.OpFabrics {
		e[4] = c.fabrics
	}
	c.describe(e[24:40])
	for i, w := range c.words {
		le.PutUint32(e[40+4*i:], w)
	}
	return append(b, c.inside...)
}

// describe writes the SGL descriptor.
func (c *message) describe(d []byte) {
	le := binary.LittleEndian
	le.PutUint64(d, c.data.Address)
	le.PutUint32(d[8:], c.data.Length)
	switch {
	case c.descriptor != nil:
		copy(d, c.descriptor)
	case c.data.Place == fabrics.InCapsule:
		d[15] = 0x01
	case c.data.Place == fabrics.InHost:
		le.PutUint32(d[11:], c.data.Key)
		if d[15] = 0x40; c.data.Invalidate {
			d[15] = 0x4f
		}
	}
}

// hostQueue is a queue pair of a host. The test decides what the host sends on it.
type hostQueue struct {
	*station
	qp        rdma.QueuePair
	cq        rdma.CompletionQueue
	conn      cm.Conn
	depth     int
	responses uint64   // of depth
	capsules  uint64   // of depth
	free      []uint64 // of the depth slots
	sent      uint16   // commands
	heard     []fabrics.Completion
	broken    error
	deaf      bool   // posts no further receives
	close     func() // closes once, however often it is called
	completed [16]rdma.WorkCompletion
	send      [1]rdma.SendRequest // the request to post
	receiving [1]rdma.ReceiveRequest
	part      [1]rdma.SGE
}

// The bytes of a slot for a capsule, and for a response.
const (
	capsuleRoom  = 8192
	responseRoom = 64
)

// dial connects a queue pair, with the host's private data. If the target refuses it, the error is
// a *cm.Error.
func (s *station) dial(depth int, private []byte) (*hostQueue, error) {
	s.Helper()
	return s.dialWith(depth, depth, private)
}

// dialWith is dial with fewer receives than the private data says.
func (s *station) dialWith(depth, receives int, private []byte) (*hostQueue, error) {
	s.Helper()
	q := &hostQueue{station: s, depth: depth, responses: s.room(uint64(depth * responseRoom)), capsules: s.room(uint64(depth * capsuleRoom))}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	route, err := s.manager.Resolve(ctx, cm.Path{To: s.target})
	s.must(err)
	defer route.Close()
	q.cq, err = s.pd.Device().NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 4 * depth})
	s.must(err)
	q.qp, err = s.pd.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: q.cq, ReceiveCQ: q.cq, SendDepth: depth, RecvDepth: depth})
	s.must(err)
	q.close = sync.OnceFunc(q.end)
	s.Cleanup(q.close)
	s.must(route.Prepare(q.qp, rdma.Remote))
	for i := range uint64(depth) {
		q.free = append(q.free, i)
		if i < uint64(receives) {
			q.receive(i)
		}
	}
	end := cm.Defaults(q.qp)
	end.Reads, end.RemoteReads, end.Private = 0, 16, private
	end.Timeout, end.RNRRetries = ackTimeout, rnrRetries
	if q.conn, err = route.Connect(ctx, end); err != nil {
		q.conn = nil
	}
	return q, err
}

// end closes the connection and its queues. It may be called from any goroutine.
func (q *hostQueue) end() {
	if q.conn != nil {
		q.check(q.conn.Close())
	}
	q.check(q.qp.Close())
	q.check(q.cq.Close())
}

func (q *hostQueue) receive(slot uint64) {
	q.receiving[0] = rdma.ReceiveRequest{ID: 1<<32 | slot, SGEs: 1}
	q.part[0] = rdma.SGE{Addr: q.memory.Addr() + q.responses + slot*responseRoom, Length: responseRoom, LKey: q.memory.LKey()}
	if _, err := q.qp.PostReceive(q.receiving[:], q.part[:]); err != nil && q.broken == nil {
		q.broken = err
	}
}

// until waits for a condition that becomes true within microseconds.
func (s *station) until(what string, is func() bool) {
	s.Helper()
	for end := time.Now().Add(waitLimit); !is(); time.Sleep(20 * time.Microsecond) {
		if time.Now().After(end) {
			s.Fatalf("waited %v for %s", waitLimit, what)
		}
	}
}

// say sends a message.
func (q *hostQueue) say(b []byte) error {
	q.Helper()
	q.until("a slot for a capsule", func() bool { q.poll(); return len(q.free) > 0 || q.broken != nil })
	if q.broken != nil {
		return q.broken
	}
	slot := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	return q.saySlot(slot, uint64(copy(q.bytes(q.capsules+slot*capsuleRoom, capsuleRoom), b)))
}

// saySlot sends the contents of a slot.
func (q *hostQueue) saySlot(slot, n uint64) error {
	return q.post(rdma.SendRequest{ID: slot, Op: rdma.Send}, q.capsules+slot*capsuleRoom, n)
}

// post posts a request with bytes of the station's memory.
func (q *hostQueue) post(r rdma.SendRequest, at, n uint64) error {
	r.Flags, r.SGEs = rdma.Signaled, 1
	q.send[0], q.part[0] = r, rdma.SGE{Addr: q.memory.Addr() + at, Length: uint32(n), LKey: q.memory.LKey()}
	_, err := q.qp.PostSend(q.send[:], q.part[:])
	return err
}

// completionOf decodes what fabrics.Completion.Put writes.
func completionOf(b []byte) fabrics.Completion {
	le := binary.LittleEndian
	return fabrics.Completion{Result: le.Uint64(b), SQHead: le.Uint16(b[8:]), ID: le.Uint16(b[12:]), Status: fabrics.Status(le.Uint16(b[14:]) >> 1)}
}

// poll processes completions of receives and sends.
func (q *hostQueue) poll() {
	n, err := q.cq.Poll(q.completed[:])
	if err != nil {
		q.broken = err
	}
	for i := range q.completed[:n] {
		c := &q.completed[i]
		slot := uint64(uint32(c.ID))
		switch {
		case c.Status != rdma.Success:
			q.broken = errors.Join(errGone, c.Err())
		case c.Kind == rdma.Received:
			if b := q.bytes(q.responses+slot*responseRoom, uint64(c.Length)); len(b) >= fabrics.CompletionLen {
				q.heard = append(q.heard, completionOf(b))
			}
			if !q.deaf {
				q.receive(slot)
			}
		default:
			q.free = append(q.free, slot)
		}
	}
}

// hear waits for a response, or the end of the queue.
func (q *hostQueue) hear() (fabrics.Completion, error) {
	q.Helper()
	q.until("a response", func() bool { q.poll(); return len(q.heard) > 0 || q.broken != nil })
	if len(q.heard) == 0 {
		return fabrics.Completion{}, q.broken
	}
	c := q.heard[0]
	q.heard = q.heard[1:]
	return c, nil
}

// ask sends a command and waits for its completion.
func (q *hostQueue) ask(c *message) fabrics.Completion {
	q.Helper()
	q.sent++
	q.must(q.say(c.append(nil, q.sent)))
	got, err := q.hear()
	q.must(err)
	if got.ID != q.sent {
		q.Fatalf("the completion is of command %d, not %d", got.ID, q.sent)
	}
	return got
}

// succeeds is ask for a command that must succeed.
func (q *hostQueue) succeeds(c *message) fabrics.Completion {
	q.Helper()
	got := q.ask(c)
	if got.Status != fabrics.Success {
		q.Fatalf("command %#x: %v, result %#x", c.opcode, got.Status, got.Result)
	}
	return got
}

// gone waits until the target has ended the queue.
func (q *hostQueue) gone(why string) {
	q.Helper()
	select {
	case <-q.conn.Done():
	case <-time.After(waitLimit):
		q.Fatalf("%s: the target has not ended the queue", why)
	}
}

// keyed returns the place of data in the station's memory.
func (s *station) keyed(at, n uint64) fabrics.Data {
	return fabrics.Data{Place: fabrics.InHost, Length: uint32(n), Key: s.memory.RKey(), Address: s.memory.Addr() + at}
}

// connectData returns the data of a Connect.
func connectData(host, subsystem string, controller uint16) []byte {
	b := make([]byte, fabrics.ConnectDataLen)
	copy(b, "0123456789abcdef")
	binary.LittleEndian.PutUint16(b[16:], controller)
	copy(b[256:], subsystem)
	copy(b[512:], host)
	return b
}

// connectData returns the data of a Connect, with the station's host identifier.
func (s *station) connectData(host string, controller uint16) []byte {
	b := connectData(host, softNQN, controller)
	copy(b, s.id)
	return b
}

// open connects a queue pair as the kernel's initiator does, and sends nothing on it.
func (s *station) open(id uint16, depth int) *hostQueue {
	s.Helper()
	q, err := s.dial(depth, fabrics.PrivateRequest{Queue: id, HostRoom: uint16(depth), HostSends: uint32(depth)}.Bytes())
	s.must(err)
	return q
}

// connectCommand returns a Connect for a queue, with its data in the capsule.
func connectCommand(id uint16, depth int, data []byte) *message {
	return &message{opcode: fabrics.OpFabrics, fabrics: fabrics.Connect, data: fabrics.Data{Place: fabrics.InCapsule, Length: uint32(len(data))}, inside: data,
		words: [6]uint32{uint32(id) << 16, uint32(depth - 1), 60_000}}
}

// handMade is a connected host: a controller and its queues.
type handMade struct {
	*station
	controller uint16
	admin      *hostQueue
	queues     []*hostQueue
}

// connects connects a host to a subsystem, with a number of I/O queues.
func (s *station) connects(host string, queues, depth int) *handMade {
	s.Helper()
	return s.welcomed(s.open(fabrics.AdminQueue, fabrics.AdminDepth), host, queues, depth, 60_000)
}

// welcomed continues from a connected admin queue, with a keep-alive time in milliseconds.
func (s *station) welcomed(admin *hostQueue, host string, queues, depth int, silence uint32) *handMade {
	s.Helper()
	h, err := s.joins(admin, host, queues, depth, silence)
	s.must(err)
	return h
}

// joins is welcomed for a host whose queues the target may refuse.
func (s *station) joins(admin *hostQueue, host string, queues, depth int, silence uint32) (*handMade, error) {
	s.Helper()
	h := &handMade{station: s, admin: admin}
	c := connectCommand(fabrics.AdminQueue, fabrics.AdminDepth, s.connectData(host, fabrics.AnyController))
	c.words[2] = silence
	h.controller = uint16(h.admin.succeeds(c).Result)
	h.admin.succeeds(enable)
	for id := range uint16(queues) {
		q, err := s.dial(depth, fabrics.PrivateRequest{Queue: id + 1, HostRoom: uint16(depth), HostSends: uint32(depth)}.Bytes())
		h.queues = append(h.queues, q)
		if err != nil {
			return h, err
		}
		q.succeeds(connectCommand(id+1, depth, s.connectData(host, h.controller)))
	}
	return h, nil
}

// enable sets CC as the kernel's initiator does.
var enable = &message{opcode: fabrics.OpFabrics, fabrics: fabrics.PropertySet, words: [6]uint32{0, 0x14, 1 | 6<<16 | 4<<20}}

// blocks returns a command for blocks of 4096 bytes.
func blocks(opcode uint8, first uint64, count int, data fabrics.Data) *message {
	return &message{opcode: opcode, namespace: 1, data: data, words: [6]uint32{uint32(first), uint32(first >> 32), uint32(count - 1)}}
}

// TestHandMadeHost: a host reads the data that it wrote, from capsules and from its memory.
func TestHandMadeHost(t *testing.T) {
	r, s := newSoftRig(t)
	v := r.serve(Config{Sessions: 4, Queues: 2, Depth: 32, Capsule: 4096, Small: 16, Large: 8, Subsystems: []Subsystem{{NQN: softNQN, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: r.zram(64 << 20)}}}}})
	h := s.connects(softHost, 2, 32)
	from, to := s.room(256<<10), s.room(256<<10)
	for n, q := range []*hostQueue{h.queues[0], h.queues[1]} {
		for _, count := range []int{1, 2, 16, 64} {
			data := s.bytes(from, uint64(count)<<12)
			for i := range data {
				data[i] = byte(i*7 + i>>12 + n + count)
			}
			q.succeeds(blocks(fabrics.OpWrite, 8, count, s.keyed(from, uint64(count)<<12)))
			q.succeeds(&message{opcode: fabrics.OpFlush, namespace: 1})
			clear(s.bytes(to, 256<<10))
			q.succeeds(blocks(fabrics.OpRead, 8, count, s.keyed(to, uint64(count)<<12)))
			if string(s.bytes(to, uint64(count)<<12)) != string(data) {
				t.Errorf("%d blocks are not those that were written", count)
			}
		}
	}
	inside := blocks(fabrics.OpWrite, 3, 1, fabrics.Data{Place: fabrics.InCapsule, Length: 4096})
	inside.inside = s.bytes(from, 4096)
	h.queues[0].succeeds(inside)
	h.queues[0].succeeds(blocks(fabrics.OpCompare, 3, 1, s.keyed(from, 4096)))
	h.queues[0].succeeds(blocks(fabrics.OpWriteZeroes, 3, 1, fabrics.Data{}))
	h.queues[0].succeeds(blocks(fabrics.OpRead, 3, 1, s.keyed(to, 4096)))
	if got := h.queues[0].ask(blocks(fabrics.OpCompare, 3, 1, s.keyed(from, 4096))); got.Status.Code() != fabrics.CompareFailure || !bytes.Equal(s.bytes(to, 4096), make([]byte, 4096)) {
		t.Errorf("zeros compare equal to what was there: %v", got.Status)
	}
	ranges := s.bytes(from, 32)
	clear(ranges)
	ranges[4], ranges[8], ranges[20], ranges[24] = 1, 20, 2, 22
	h.queues[0].succeeds(&message{opcode: fabrics.OpDataset, namespace: 1, data: s.keyed(from, 32), words: [6]uint32{1, 4}})
	testenv.Wait(t, waitLimit, "all to be known to have arrived", func() bool { st := v.server.Stats(); return st.Compares == 1 && st.Zeroes == 1 && st.Discards == 1 })
	if st := v.server.HostStats(); len(st) != 1 || st[0].NQN != softHost || st[0].Queues != 3 || st[0].Read.Commands != 9 || st[0].Written.Bytes != 2*83<<12+4096 || st[0].Refused != 1 {
		t.Errorf("%+v", st)
	}
	if st := v.server.NamespaceStats(); len(st) != 1 || st[0].Read.Commands != 9 || st[0].Written.Bytes != 2*83<<12+4096 || st[0].Flushes != 8 || st[0].Zeroes != 1 || st[0].Discards != 1 ||
		st[0].Compares != 1 || st[0].Refused != 1 || st[0].Failed != 0 {
		t.Errorf("of the namespace: %+v", st)
	}
	if st := v.server.Stats(); st.Hosts != 1 || st.Queues != 3 || st.InCapsule != 4096 || st.Written.Bytes != 2*83<<12+4096 || st.Refused != 1 || st.Failed+st.Ended != 0 {
		t.Errorf("%+v", st)
	}
}

// TestKeepAlive: a host's keep-alive time counts from when its controller is ready. The target ends
// a host that is silent for longer.
func TestKeepAlive(t *testing.T) {
	r, s := newSoftRig(t)
	v := r.serve(Config{Sessions: 2, Queues: 1, Depth: 32, Capsule: 4096, Small: 16, Large: 8, Subsystems: []Subsystem{{NQN: softNQN, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: r.zram(16 << 20)}}}}})
	const keepAlive = 100 * time.Millisecond
	q := s.open(fabrics.AdminQueue, fabrics.AdminDepth)
	c := connectCommand(fabrics.AdminQueue, fabrics.AdminDepth, connectData(softHost, softNQN, fabrics.AnyController))
	c.words[2] = uint32(keepAlive.Milliseconds())
	q.succeeds(c)
	time.Sleep(2 * (keepAlive + grace))
	if st := v.server.Stats(); st.Expired != 0 || st.Hosts != 1 {
		t.Errorf("a host that is not ready: %d fell silent, %d are there", st.Expired, st.Hosts)
	}
	q.succeeds(enable)
	q.gone("a host that says nothing")
	if st := v.server.Stats(); st.Expired != 1 {
		t.Errorf("%d hosts fell silent", st.Expired)
	}
	v.rest()
}
