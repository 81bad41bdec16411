package nvmet

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// Commands of hosts that want events.
var (
	wantEvents = &message{opcode: fabrics.OpSetFeatures, words: [6]uint32{0x0b, 1<<8 | 1<<31}}
	nextEvent  = &message{opcode: fabrics.OpAsyncEvent}
)

// Results of events: the type (notice), which notice, and the log page to read.
const (
	namespacesChanged = 2 | 0x00<<8 | 0x04<<16
	discoveryChanged  = 2 | 0xf0<<8 | 0x70<<16
)

// TestChange: Change adds and removes namespaces and subsystems while hosts are connected. The
// hosts get events, and their other commands continue.
func TestChange(t *testing.T) {
	r, s := newSoftRig(t)
	released := make(chan struct{})
	one := Subsystem{NQN: softNQN, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: r.zram(16 << 20)}}}
	two := one
	two.Namespaces = append(slices.Clone(one.Namespaces), Namespace{ID: 2, Disk: r.zram(16 << 20), Released: func() { close(released) }})
	other := Subsystem{NQN: "nqn.2026-01.com.example:other", AnyHost: true}
	v := r.serve(Config{Sessions: 6, Queues: 2, Depth: 32, Capsule: 4096, Small: 32, Large: 8, Subsystems: []Subsystem{one}})
	change := func(all ...Subsystem) error { return v.do(func() error { _, err := v.server.Change(all); return err }) }
	at := s.room(256 << 10)
	h, looks := s.connects(softHost, 1, 32), s.looks()
	for _, q := range []*hostQueue{h.admin, looks} {
		q.succeeds(wantEvents)
		q.awaits()
	}

	r.must(change(two))
	h.admin.hears(namespacesChanged)
	if got := h.admin.numbers(h.admin.logPage(0x04, at)); !slices.Equal(got, []uint32{2}) {
		t.Errorf("changed: %v", got)
	}
	if got := h.active(at); !slices.Equal(got, []uint32{1, 2}) {
		t.Errorf("there are %v", got)
	}
	second := func(opcode uint8) *message {
		m := blocks(opcode, 1, 1, s.keyed(at, 4096))
		m.namespace = 2
		return m
	}
	h.queues[0].succeeds(second(fabrics.OpWrite))

	before := binary.LittleEndian.Uint64(looks.logPage(0x70, at))
	r.must(change(two, other))
	looks.hears(discoveryChanged)
	page := looks.logPage(0x70, at)
	if got := binary.LittleEndian.Uint64(page); got <= before || !strings.Contains(string(page), other.NQN) {
		t.Errorf("generation %d, then %d, and the log says %q", before, got, strings.TrimRight(string(page), "\x00"))
	}
	generation := func() uint64 { return binary.LittleEndian.Uint64(looks.logPage(0x70, at)) }
	friend, stranger := other, other
	friend.AnyHost, friend.Hosts = false, []string{softHost}
	stranger.AnyHost, stranger.Hosts = false, []string{softHost + "2"}
	for why, all := range map[string][]Subsystem{"the host may connect": {two, friend}, "the host may not connect any more": {two, stranger}, "the subsystem is gone": {two}} {
		before := generation()
		if r.must(change(all...)); generation() <= before {
			t.Errorf("the generation is still %d, and %s", before, why)
		}
	}
	if err := change(two, two); err == nil || !strings.Contains(err.Error(), softNQN) {
		t.Errorf("a subsystem was taken twice: %v", err)
	}

	h.admin.awaits()
	const writes = 16
	q := h.queues[0]
	for n := range uint16(writes) {
		r.must(q.say(second(fabrics.OpWrite).append(nil, 1000+n)))
	}
	r.must(change(one))
	for range writes {
		c, err := q.hear()
		r.must(err)
		if c.Status != fabrics.Success && c.Status != fabrics.AsymmetricAccessInaccessible {
			t.Errorf("a write to a namespace that goes: %v", c.Status)
		}
	}
	select {
	case <-released:
	case <-time.After(waitLimit):
		t.Fatal("the disk is not given back")
	}
	h.admin.hears(namespacesChanged)
	gone := func(why string, opcode uint8, namespace uint32, want fabrics.Status) {
		t.Helper()
		m := second(opcode)
		m.namespace = namespace
		if c := q.ask(m); c.Status != want {
			t.Errorf("%s: %v, not %v", why, c.Status, want)
		}
	}
	counted := v.server.Stats()
	gone("a namespace that was removed is read", fabrics.OpRead, 2, fabrics.AsymmetricAccessInaccessible)
	gone("a namespace that was removed is written", fabrics.OpWrite, 2, fabrics.AsymmetricAccessInaccessible)
	gone("a namespace that never was is read", fabrics.OpRead, 3, fabrics.InvalidNamespace|fabrics.DoNotRetry)
	h.admin.succeeds(&message{opcode: fabrics.OpSetFeatures, words: [6]uint32{0x0b, 0}})
	gone("a host that does not want to be told of it reads", fabrics.OpRead, 2, fabrics.InvalidNamespace|fabrics.DoNotRetry)
	if now := v.server.Stats(); now.Inaccessible != counted.Inaccessible+2 || now.Refused != counted.Refused+2 {
		t.Errorf("%d inaccessible and %d refused, then %d and %d", counted.Inaccessible, counted.Refused, now.Inaccessible, now.Refused)
	}
	q.succeeds(blocks(fabrics.OpRead, 0, 1, s.keyed(at, 4096)))
	if st := v.server.NamespaceStats(); len(st) != 1 || st[0].Disk != one.Namespaces[0].Disk || st[0].Written.Commands != 0 {
		t.Errorf("counted of namespaces: %+v", st)
	}

	one.Hosts = []string{"nqn.2026-01.com.example:friend"}
	r.must(change(one))
	h.admin.gone("who may not be there any more")
	v.rest()
}

// TestResize: a disk that has grown or shrunk has its new size for connected hosts, who are told of it.
func TestResize(t *testing.T) {
	r, s := newSoftRig(t)
	path := filepath.Join(testenv.DiskDir(t), "disk")
	r.must(os.WriteFile(path, make([]byte, 1<<20), 0o600))
	disk, err := nvme.OpenTarget(nvme.TargetConfig{Path: path})
	r.must(err)
	t.Cleanup(func() { r.check(disk.Close()) })
	all := []Subsystem{{NQN: softNQN, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: disk}}}}
	v := r.serve(Config{Sessions: 4, Queues: 2, Depth: 32, Capsule: 4096, Small: 16, Large: 8, Subsystems: all})
	h, at := s.connects(softHost, 1, 32), s.room(64<<10)
	h.admin.succeeds(wantEvents)
	block := uint64(max(disk.Alignment().Offset, 512))
	last := func(size uint64) *message {
		return blocks(fabrics.OpWrite, size/block-1, 1, s.keyed(at, block))
	}
	resizes := func(size uint64) {
		t.Helper()
		h.admin.awaits()
		r.must(os.Truncate(path, int64(size)))
		now, err := disk.Measure()
		r.must(err)
		disk.Resize(now)
		r.must(v.do(func() error { _, err := v.server.Change(all); return err }))
		h.admin.hears(namespacesChanged)
		if got := h.admin.numbers(h.admin.logPage(0x04, at)); !slices.Equal(got, []uint32{1}) {
			t.Errorf("changed: %v", got)
		}
		h.admin.succeeds(&message{opcode: fabrics.OpIdentify, namespace: 1, data: h.keyed(at, fabrics.IdentifyLen)})
		if got := binary.LittleEndian.Uint64(h.bytes(at, 8)) * block; got != size {
			t.Errorf("the namespace has %d bytes, not %d", got, size)
		}
		h.queues[0].succeeds(last(size))
		h.queues[0].refuses(last(size+block), fabrics.LBAOutOfRange)
	}
	h.queues[0].refuses(last(2<<20), fabrics.LBAOutOfRange)
	resizes(2 << 20)
	resizes(512 << 10)
	if st, err := os.Stat(path); err != nil || st.Size() != 512<<10 {
		t.Errorf("the file has %d bytes: %v", st.Size(), err)
	}
}

// looks connects to the discovery subsystem.
func (s *station) looks() *hostQueue {
	s.Helper()
	q := s.open(fabrics.AdminQueue, fabrics.AdminDepth)
	q.succeeds(connectCommand(fabrics.AdminQueue, fabrics.AdminDepth, connectData(softHost, fabrics.DiscoveryNQN, fabrics.AnyController)))
	q.succeeds(enable)
	return q
}

// eventID is the ID of asynchronous event requests.
const eventID = 900

// awaits requests the next event.
func (q *hostQueue) awaits() {
	q.Helper()
	q.must(q.say(nextEvent.append(nil, eventID)))
}

// hears waits for the event that awaits requested.
func (q *hostQueue) hears(what uint64) {
	q.Helper()
	c, err := q.hear()
	q.must(err)
	if c.ID != eventID || c.Status != fabrics.Success || c.Result != what {
		q.Errorf("completion %d says %#x, %v, not %#x", c.ID, c.Result, c.Status, what)
	}
}

// pageLen is the number of bytes to read from a log page.
const pageLen = 4096

// logPage reads a log page.
func (q *hostQueue) logPage(id uint32, at uint64) []byte {
	q.Helper()
	clear(q.bytes(at, pageLen))
	q.succeeds(&message{opcode: fabrics.OpGetLogPage, namespace: 0xffffffff, data: q.keyed(at, pageLen), words: [6]uint32{id | (pageLen/4-1)<<16}})
	return q.bytes(at, pageLen)
}

// numbers returns the numbers of a list, up to the first zero.
func (q *hostQueue) numbers(b []byte) (all []uint32) {
	for ; binary.LittleEndian.Uint32(b) != 0; b = b[4:] {
		all = append(all, binary.LittleEndian.Uint32(b))
	}
	return all
}

// active returns the active namespaces.
func (h *handMade) active(at uint64) []uint32 {
	h.Helper()
	clear(h.bytes(at, fabrics.IdentifyLen))
	h.admin.succeeds(&message{opcode: fabrics.OpIdentify, data: h.keyed(at, fabrics.IdentifyLen), words: [6]uint32{2}})
	return h.admin.numbers(h.bytes(at, fabrics.IdentifyLen))
}
