package nvmet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
)

// TestHostile: the target answers a host that breaks the rules with the specification's status, or
// ends its queue. It keeps nothing of that host, and other hosts are not affected.
func TestHostile(t *testing.T) {
	r, s := newSoftRig(t)
	hostile(r, s)
}

// siege is a server with a good host, while other hosts are hostile.
type siege struct {
	*rig
	*station
	v     *served
	good  *handMade
	at    uint64 // memory of the good host
	bad   uint64 // memory of the others
	round int
}

// besieged is the number of blocks of the disk, of 4096 bytes each.
const besieged = 4096

func hostile(r *rig, s *station) {
	g := &siege{rig: r, station: s}
	g.v = r.serve(Config{Sessions: 10, Queues: 2, Depth: 32, Capsule: 4096, Small: 40, Large: 11,
		Subsystems: []Subsystem{{NQN: softNQN, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: r.zram(besieged << 12)}}},
			{NQN: "nqn.2026-01.com.example:closed", Hosts: []string{"nqn.2026-01.com.example:friend"}}}})
	g.at, g.bad = s.room(64<<10), s.room(256<<10)
	g.good = s.connects(softHost, 1, 32)
	for _, part := range []struct {
		name string
		run  func(*siege)
	}{{"commands", (*siege).commands}, {"admin", (*siege).admin}, {"connect", (*siege).connect}, {"private data", (*siege).private}, {"transport", (*siege).transport},
		{"overrun", (*siege).overrun}, {"deaf", (*siege).deaf}, {"flood", (*siege).flood}, {"noise", (*siege).noise}} {
		r.Run(part.name, func(t *testing.T) {
			on := *g
			on.rig, on.station = g.rig.with(t), g.station.with(t)
			part.run(&on)
		})
	}
	g.alone()
}

// alone waits until only the good host is connected and the server has all its buffers back.
func (g *siege) alone() {
	g.Helper()
	testenv.Wait(g.T, waitLimit, "the others to be gone", func() bool { s := g.v.server.Stats(); return s.Hosts == 1 && s.Queues == 2 })
	g.v.rest()
	g.undisturbed(func() {})
}

// undisturbed makes the good host write and read while f runs.
func (g *siege) undisturbed(f func()) {
	g.Helper()
	g.round++
	q := g.good.queues[0]
	data := g.bytes(g.at, 32<<10)
	for i := range data {
		data[i] = byte(i>>8 + i*g.round)
	}
	for i := range uint64(4) {
		q.sent++
		g.must(q.say(blocks(fabrics.OpWrite, 64+2*i, 2, g.keyed(g.at+i<<13, 8192)).append(nil, q.sent)))
	}
	f()
	for range 4 {
		if c, err := q.hear(); err != nil || c.Status != fabrics.Success {
			g.Fatalf("the good host hears %v, %v", c.Status, err)
		}
	}
	q.succeeds(blocks(fabrics.OpRead, 64, 8, g.keyed(g.at+32<<10, 32<<10)))
	if string(g.bytes(g.at+32<<10, 32<<10)) != string(data) {
		g.Fatal("the good host reads something else than it wrote")
	}
}

// refused checks that the target refuses a command with a status that forbids a retry.
func (g *siege) refused(q *hostQueue, name string, c *message, want fabrics.Status) {
	g.Helper()
	g.undisturbed(func() {
		if got := q.ask(c); got.Status != want|fabrics.DoNotRetry {
			g.Errorf("%s: %v (%#x), not %v", name, got.Status, uint16(got.Status), want)
		}
	})
}

// ends closes queues of a hostile host.
func (g *siege) ends(all ...*hostQueue) {
	for _, q := range all {
		g.check(q.conn.Close())
	}
}

func (g *siege) hang(h *handMade) { g.ends(append(h.queues, h.admin)...) }

// sgl returns a descriptor with these fields.
func sgl(address uint64, length uint32, rest ...byte) []byte {
	d := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, address), length)
	return append(d, append(make([]byte, 4-len(rest)), rest...)...)
}

// inside describes data after the command in the capsule.
func inside(offset uint64, length uint32) fabrics.Data {
	return fabrics.Data{Place: fabrics.InCapsule, Address: offset, Length: length}
}

// commands: the target refuses invalid commands to a namespace.
func (g *siege) commands() {
	h := g.connects("nqn.2026-01.com.example:bad", 1, 32)
	q := h.queues[0]
	at := func(n uint64) fabrics.Data { return g.keyed(g.bad, n) }
	with := func(change func(*message), of *message) *message { change(of); return of }
	ranges := g.bytes(g.bad, 32)
	binary.LittleEndian.PutUint32(ranges[4:], 1)
	binary.LittleEndian.PutUint32(ranges[20:], 8)
	binary.LittleEndian.PutUint64(ranges[24:], besieged-7)
	for _, c := range []struct {
		name string
		*message
		want fabrics.Status
	}{
		{"PRPs", with(func(m *message) { m.flags = 0x80 }, blocks(fabrics.OpRead, 0, 1, at(4096))), fabrics.InvalidField},
		{"fused", with(func(m *message) { m.flags = 0x41 }, blocks(fabrics.OpRead, 0, 1, at(4096))), fabrics.InvalidField},
		{"a segment", with(func(m *message) { m.descriptor = sgl(0, 16, 0x20) }, blocks(fabrics.OpRead, 0, 1, fabrics.Data{})), fabrics.InvalidSGLType},
		{"a last segment of 4 GiB", with(func(m *message) { m.descriptor = sgl(1<<60, 1<<32-1, 0x30) }, blocks(fabrics.OpWrite, 0, 1, fabrics.Data{})), fabrics.InvalidSGLType},
		{"beyond the end of memory", with(func(m *message) { m.data.Address = 1<<64 - 4096 }, blocks(fabrics.OpWrite, 0, 2, at(8192))), fabrics.InvalidSGLLength},
		{"more than the capsule has", blocks(fabrics.OpWrite, 0, 1, inside(0, 4096)), fabrics.InvalidSGLLength},
		{"elsewhere in the capsule", with(func(m *message) { m.inside = make([]byte, 4096) }, blocks(fabrics.OpWrite, 0, 1, inside(64, 4096))), fabrics.InvalidSGLOffset},
		{"a read into the capsule", with(func(m *message) { m.inside = make([]byte, 4096) }, blocks(fabrics.OpRead, 0, 1, inside(0, 4096))), fabrics.InvalidSGLType},
		{"less memory than blocks", blocks(fabrics.OpRead, 0, 2, at(4096)), fabrics.InvalidSGLLength},
		{"more memory than blocks", blocks(fabrics.OpWrite, 0, 1, at(8192)), fabrics.InvalidSGLLength},
		{"no memory", blocks(fabrics.OpWrite, 0, 1, fabrics.Data{}), fabrics.InvalidSGLLength},
		{"memory for zeros", blocks(fabrics.OpWriteZeroes, 0, 1, at(4096)), fabrics.InvalidSGLLength},
		{"behind the end", blocks(fabrics.OpRead, besieged, 1, at(4096)), fabrics.LBAOutOfRange},
		{"over the end", blocks(fabrics.OpWrite, besieged-1, 2, at(8192)), fabrics.LBAOutOfRange},
		{"over the end of numbers", blocks(fabrics.OpWrite, 1<<64-1, 2, at(8192)), fabrics.LBAOutOfRange},
		{"a zeroing over the end", blocks(fabrics.OpWriteZeroes, besieged-1, 2, fabrics.Data{}), fabrics.LBAOutOfRange},
		{"too long", blocks(fabrics.OpRead, 0, 512, fabrics.Data{Place: fabrics.InHost, Length: 2 << 20, Key: g.memory.RKey()}), fabrics.InvalidField},
		{"another namespace", with(func(m *message) { m.namespace = 7 }, blocks(fabrics.OpRead, 0, 1, at(4096))), fabrics.InvalidNamespace},
		{"all namespaces", with(func(m *message) { m.namespace = 1<<32 - 1 }, blocks(fabrics.OpRead, 0, 1, at(4096))), fabrics.InvalidNamespace},
		{"no namespace", with(func(m *message) { m.namespace = 0 }, blocks(fabrics.OpRead, 0, 1, at(4096))), fabrics.InvalidNamespace},
		{"no opcode", blocks(0xfe, 0, 1, at(4096)), fabrics.InvalidOpcode},
		{"an admin command", &message{opcode: fabrics.OpIdentify, namespace: 1, data: at(4096), words: [6]uint32{1}}, fabrics.InvalidOpcode},
		{"a property", &message{opcode: fabrics.OpFabrics, fabrics: fabrics.PropertyGet, words: [6]uint32{0, 0x14}}, fabrics.InvalidOpcode},
		{"a command of Fabrics that is none", &message{opcode: fabrics.OpFabrics, fabrics: 0xc7}, fabrics.InvalidOpcode},
		{"a second Connect", connectCommand(1, 32, connectData(softHost, softNQN, h.controller)), fabrics.CommandSequence},
		{"ranges, and less memory", &message{opcode: fabrics.OpDataset, namespace: 1, data: at(16), words: [6]uint32{1, 4}}, fabrics.InvalidSGLLength},
		{"a range over the end", &message{opcode: fabrics.OpDataset, namespace: 1, data: at(32), words: [6]uint32{1, 4}}, fabrics.LBAOutOfRange},
	} {
		g.refused(q, c.name, c.message, c.want)
	}
	q.succeeds(blocks(fabrics.OpRead, 0, 1, at(4096)))
	g.hang(h)
}

// admin: the target refuses invalid admin commands.
func (g *siege) admin() {
	q := g.open(fabrics.AdminQueue, fabrics.AdminDepth)
	at := func(n uint64) fabrics.Data { return g.keyed(g.bad, n) }
	identify := &message{opcode: fabrics.OpIdentify, data: at(4096), words: [6]uint32{1}}
	g.refused(q, "before Connect", identify, fabrics.CommandSequence)
	q.succeeds(connectCommand(0, fabrics.AdminDepth, connectData(softHost, softNQN, fabrics.AnyController)))
	g.refused(q, "before it is enabled", identify, fabrics.CommandSequence)
	q.succeeds(enable)
	property := func(kind uint8, offset uint32) *message {
		return &message{opcode: fabrics.OpFabrics, fabrics: kind, words: [6]uint32{0, offset, 1}}
	}
	log := func(n uint64, words ...uint32) *message {
		m := &message{opcode: fabrics.OpGetLogPage, data: at(n)}
		copy(m.words[:], words)
		return m
	}
	for _, c := range []struct {
		name string
		*message
		want fabrics.Status
	}{
		{"identify with less memory", &message{opcode: fabrics.OpIdentify, data: at(512), words: [6]uint32{1}}, fabrics.InvalidSGLLength},
		{"identify into the capsule", &message{opcode: fabrics.OpIdentify, data: inside(0, 4096), inside: make([]byte, 4096), words: [6]uint32{1}}, fabrics.InvalidSGLType},
		{"identify what is not", &message{opcode: fabrics.OpIdentify, data: at(4096), words: [6]uint32{0xee}}, fabrics.InvalidField},
		{"identify no namespace", &message{opcode: fabrics.OpIdentify, data: at(4096), namespace: 9, words: [6]uint32{3}}, fabrics.InvalidNamespace},
		{"a log page that is not", log(512, 0xc7|127<<16), fabrics.InvalidLogPage},
		{"a discovery log of a subsystem", log(1024, 0x70|255<<16), fabrics.InvalidLogPage},
		{"a log page of 16 GiB", log(4096, 0x02|0xffff<<16, 0xffff), fabrics.InvalidSGLLength},
		{"a log page from its midst", log(512, 0x02|127<<16, 0, 3), fabrics.InvalidField},
		{"a log page from behind its end", log(512, 0x02|127<<16, 0, 0, 1), fabrics.InvalidField},
		{"a feature that is not", &message{opcode: fabrics.OpSetFeatures, words: [6]uint32{0xee}}, fabrics.InvalidField},
		{"a feature to be saved", &message{opcode: fabrics.OpSetFeatures, words: [6]uint32{7 | 1<<31}}, fabrics.NotSaveable},
		{"a property that is not", property(fabrics.PropertyGet, 0x77), fabrics.InvalidField},
		{"a property that is read", property(fabrics.PropertySet, 0x08), fabrics.InvalidField},
		{"an I/O command", blocks(fabrics.OpWrite, 0, 1, at(4096)), fabrics.InvalidOpcode},
		{"another Connect", connectCommand(0, fabrics.AdminDepth, connectData(softHost, softNQN, fabrics.AnyController)), fabrics.CommandSequence},
	} {
		g.refused(q, c.name, c.message, c.want)
	}
	for range fabrics.AsyncEvents {
		q.sent++
		g.must(q.say((&message{opcode: fabrics.OpAsyncEvent}).append(nil, q.sent)))
	}
	g.refused(q, "one asynchronous event request too many", &message{opcode: fabrics.OpAsyncEvent}, fabrics.AsyncEventLimit)
	q.succeeds(&message{opcode: fabrics.OpKeepAlive})
	g.ends(q)
}

// connect: the target refuses invalid Connects.
func (g *siege) connect() {
	h := g.connects("nqn.2026-01.com.example:bad", 1, 32)
	anew := func(change func(*message)) *message {
		m := connectCommand(0, fabrics.AdminDepth, connectData(softHost, softNQN, fabrics.AnyController))
		change(m)
		return m
	}
	data := func(host, subsystem string, controller uint16) func(*message) {
		return func(m *message) { m.inside = connectData(host, subsystem, controller) }
	}
	for _, c := range []struct {
		name   string
		queue  uint16
		change func(*message)
		want   fabrics.Status
		result uint64
	}{
		{"no such subsystem", 0, data(softHost, "nqn.2026-01.com.example:none", fabrics.AnyController), fabrics.ConnectInvalid, fabrics.InvalidSubsystem},
		{"a name that is none", 0, data("iqn.1", softNQN, fabrics.AnyController), fabrics.ConnectInvalid, fabrics.InvalidHost},
		{"a host that may not", 0, data(softHost, "nqn.2026-01.com.example:closed", fabrics.AnyController), fabrics.ConnectHostRefused, fabrics.InvalidHost},
		{"a controller of its choice", 0, data(softHost, softNQN, 1), fabrics.ConnectInvalid, fabrics.InvalidController},
		{"another format", 0, func(m *message) { m.words[0] = 1 }, fabrics.ConnectFormat, 0},
		{"another queue", 0, func(m *message) { m.words[0] = 1 << 16 }, fabrics.ConnectInvalid, fabrics.InvalidCommand(fabrics.OffQueue)},
		{"a queue of one", 0, func(m *message) { m.words[1] = 0 }, fabrics.ConnectInvalid, fabrics.InvalidCommand(fabrics.OffSize)},
		{"a queue of 65536", 0, func(m *message) { m.words[1] = 0xffff }, fabrics.ConnectInvalid, fabrics.InvalidCommand(fabrics.OffSize)},
		{"half of the data", 0, func(m *message) { m.inside, m.data.Length = m.inside[:512], 512 }, fabrics.InvalidSGLLength, 0},
		{"no data", 0, func(m *message) { m.inside, m.data = nil, fabrics.Data{} }, fabrics.InvalidSGLLength, 0},
		{"a queue of no host", 1, data(softHost, softNQN, 0x7777), fabrics.ConnectInvalid, fabrics.InvalidController},
		{"a queue of another host", 1, data(softHost, softNQN, h.controller), fabrics.ConnectInvalid, fabrics.InvalidController},
		{"a queue twice", 1, data("nqn.2026-01.com.example:bad", softNQN, h.controller), fabrics.CommandSequence, 0},
	} {
		q := g.open(c.queue, 32)
		g.undisturbed(func() {
			got := q.ask(anew(func(m *message) { m.words[0] = uint32(c.queue) << 16; c.change(m) }))
			if got.Status.Code() != c.want || got.Result != c.result {
				g.Errorf("%s: %v with %#x, not %v with %#x", c.name, got.Status, got.Result, c.want, c.result)
			}
		})
		g.ends(q)
	}
	g.hang(h)
}

// private: the target refuses queue pairs with invalid private data.
func (g *siege) private() {
	garbage := make([]byte, 56)
	_, _ = rand.NewChaCha8([32]byte{5}).Read(garbage)
	request := func(queue, room uint16, sends uint32) []byte {
		return fabrics.PrivateRequest{Queue: queue, HostRoom: room, HostSends: sends}.Bytes()
	}
	for _, c := range []struct {
		name string
		said []byte
		want fabrics.RejectReason
	}{
		{"nothing", nil, fabrics.RejectHostRoom}, {"garbage", garbage, fabrics.RejectFormat}, {"another format", []byte{1}, fabrics.RejectFormat},
		{"queue 3 of 2", request(3, 32, 32), fabrics.RejectQueue}, {"queue 65535", request(65535, 32, 32), fabrics.RejectQueue},
		{"a queue of one", request(0, 32, 1), fabrics.RejectHostSends}, {"a queue of 65536", request(0, 32, 65536), fabrics.RejectHostSends},
		{"no room for responses", request(0, 0, 32), fabrics.RejectHostRoom},
	} {
		g.undisturbed(func() {
			_, err := g.dial(8, c.said)
			if e, is := errors.AsType[*cm.Error](err); !is || len(e.Private) < 4 || fabrics.RejectReason(binary.LittleEndian.Uint16(e.Private[2:])) != c.want {
				g.Errorf("%s: %v, not %v", c.name, err, c.want)
			}
		})
	}
	if counted := g.v.server.Stats().Rejected; counted[fabrics.RejectFormat] != 2 || counted[fabrics.RejectHostRoom] != 2 || counted[fabrics.RejectQueue] != 2 || counted[fabrics.RejectHostSends] != 2 {
		g.Errorf("%v", counted)
	}
}

// transport: the target ends the queue of a host that sends something other than a command, or that
// names memory to which it has no right.
func (g *siege) transport() {
	shut, err := g.pd.RegisterPart(g.station.region, g.bad, 4096, rdma.LocalWrite)
	g.must(err)
	past, err := g.pd.RegisterPart(g.station.region, g.bad, 4096, rdma.EveryAccess)
	g.must(err)
	pastKey := past.RKey()
	g.must(past.Close())
	key := func(k uint32, at uint64) fabrics.Data {
		return fabrics.Data{Place: fabrics.InHost, Length: 4096, Key: k, Address: at}
	}
	own := g.memory.Addr() + g.bad
	var is []struct {
		name string
		do   func(q *hostQueue) error
	}
	add := func(name string, do func(q *hostQueue) error) {
		is = append(is, struct {
			name string
			do   func(q *hostQueue) error
		}{name, do})
	}
	for name, d := range map[string]fabrics.Data{"a key of nobody's": key(0xdeadbeef, own), "a key that has ended": key(pastKey, own), "a key without rights": key(shut.RKey(), own),
		"behind its memory": key(g.memory.RKey(), g.memory.Addr()+g.memory.Length()), "over the end of its memory": key(g.memory.RKey(), g.memory.Addr()+g.memory.Length()-2048), "address 0": key(0, 0)} {
		add("a write from "+name, func(q *hostQueue) error { return q.say(blocks(fabrics.OpWrite, 0, 1, d).append(nil, 1)) })
		add("a read to "+name, func(q *hostQueue) error { return q.say(blocks(fabrics.OpRead, 0, 1, d).append(nil, 1)) })
	}
	add("an empty message", func(q *hostQueue) error { return q.say(nil) })
	add("63 bytes", func(q *hostQueue) error { return q.say(make([]byte, 63)) })
	add("more than a capsule", func(q *hostQueue) error { return q.say(make([]byte, 4096+64+1)) })
	add("WRITE with immediate", func(q *hostQueue) error {
		return q.post(rdma.SendRequest{Op: rdma.WriteImmediate, RKey: 1}, q.capsules, 0)
	})
	add("WRITE to the target's memory", func(q *hostQueue) error {
		return q.post(rdma.SendRequest{Op: rdma.Write, RKey: g.v.endpoint.Memory.RKey(), RemoteAddr: g.v.endpoint.Memory.Addr()}, g.bad, 4096)
	})
	before := g.v.server.Stats().Ended
	next := g.station.next
	for _, c := range is {
		g.station.next = next
		h := g.connects("nqn.2026-01.com.example:bad", 1, 32)
		g.undisturbed(func() {
			g.must(c.do(h.queues[0]))
			h.queues[0].gone(c.name)
		})
		h.admin.succeeds(&message{opcode: fabrics.OpKeepAlive})
		g.hang(h)
	}
	testenv.Wait(g.T, waitLimit, "all to be counted", func() bool { return g.v.server.Stats().Ended == before+uint64(len(is)) })
	g.must(shut.Close())
}

// overrun: the target ends a queue with more commands in progress than it has entries.
func (g *siege) overrun() {
	admin := g.open(0, fabrics.AdminDepth)
	controller := uint16(admin.succeeds(connectCommand(0, fabrics.AdminDepth, connectData(softHost, softNQN, fabrics.AnyController))).Result)
	admin.succeeds(enable)
	const room = 4
	q, err := g.dial(64, fabrics.PrivateRequest{Queue: 1, HostRoom: room, HostSends: room}.Bytes())
	g.must(err)
	q.succeeds(connectCommand(1, room, connectData(softHost, softNQN, controller)))
	b := blocks(fabrics.OpRead, 0, 64, g.keyed(g.bad, 256<<10)).append(nil, 9)
	g.undisturbed(func() {
		q.until("the target to have enough", func() bool {
			for q.broken == nil && len(q.free) > 0 {
				if err := q.say(b); err != nil {
					break
				}
			}
			q.poll()
			return q.broken != nil
		})
	})
	q.gone("overrun")
	g.ends(q, admin)
}

// deaf: a host requests more data than there are buffers, and does not receive it. The good host is
// not affected.
func (g *siege) deaf() {
	admin := g.open(0, fabrics.AdminDepth)
	controller := uint16(admin.succeeds(connectCommand(0, fabrics.AdminDepth, connectData(softHost, softNQN, fabrics.AnyController))).Result)
	admin.succeeds(enable)
	q, err := g.dialWith(32, 2, fabrics.PrivateRequest{Queue: 1, HostRoom: 32, HostSends: 32}.Bytes())
	g.must(err)
	q.deaf = true
	q.succeeds(connectCommand(1, 32, connectData(softHost, softNQN, controller)))
	waited := g.v.server.Stats().Waited
	for range 30 {
		g.must(q.say(blocks(fabrics.OpRead, 0, 64, g.keyed(g.bad, 256<<10)).append(nil, 9)))
	}
	testenv.Wait(g.T, waitLimit, "the buffers to be taken", func() bool { return g.v.server.Stats().Waited > waited+10 })
	for range 3 {
		g.undisturbed(func() {})
	}
	g.hang(g.connects("nqn.2026-01.com.example:another", 1, 32))
	g.ends(q, admin)
}

// flood: one host connects more silent queues than it may have. The target ends the oldest ones,
// and other hosts are not affected.
func (g *siege) flood() {
	const more = 3
	most, each := unproven(g.v.server.config.Sessions)
	before := g.v.server.Stats()
	g.undisturbed(func() {
		var all []*hostQueue
		for range each + more {
			q, err := g.dial(4, fabrics.PrivateRequest{HostRoom: 4, HostSends: 4}.Bytes())
			g.must(err)
			all = append(all, q)
		}
		for _, q := range all[:more] {
			q.gone("the oldest gives way")
		}
		if n := g.v.unproven(); n != each || n > most {
			g.Errorf("%d queues are silent, %d of one host may be", n, each)
		}
		g.ends(all...)
		testenv.Wait(g.T, waitLimit, "free seats", func() bool { return g.v.server.Stats().Queues == 2 })
	})
	if st := g.v.server.Stats(); st.GaveWay-before.GaveWay != more || st.Rejected[fabrics.RejectNoResources] != before.Rejected[fabrics.RejectNoResources] {
		g.Errorf("%d gave way, %d are refused", st.GaveWay-before.GaveWay, st.Rejected[fabrics.RejectNoResources])
	}
	g.hang(g.connects("nqn.2026-01.com.example:late", 1, 32))
}

// noise: the target answers each random command, or ends its queue.
func (g *siege) noise() {
	const rounds = 400
	random := rand.New(rand.NewPCG(1, 8))
	next, ended := g.station.next, 0
	var h *handMade
	for i := range rounds {
		if h == nil {
			g.station.next = next
			h = g.connects(fmt.Sprintf("nqn.2026-01.com.example:noise%d", i), 1, 32)
		}
		q := h.queues[0]
		if random.IntN(3) == 0 {
			q = h.admin
		}
		q.sent++
		err := q.say(g.garble(random).append(nil, q.sent))
		if err == nil {
			_, err = q.hear()
		}
		if err != nil || q.conn.Err() != nil || h.admin.conn.Err() != nil || h.queues[0].conn.Err() != nil {
			ended++
			g.hang(h)
			h = nil
		}
		if i%50 == 0 {
			g.undisturbed(func() {})
		}
	}
	if h != nil {
		g.hang(h)
	}
	if ended == 0 || ended == rounds {
		g.Errorf("%d of %d ended the queue", ended, rounds)
	}
}

// garble returns a command each part of which may be wrong. It does not use blocks of the good
// host.
func (g *siege) garble(random *rand.Rand) *message {
	opcodes := []uint8{0, 1, 2, 5, 8, 9, 2, 6, 8, 9, 0xa, 0x18, fabrics.OpFabrics, uint8(random.Uint32())}
	m := blocks(opcodes[random.IntN(len(opcodes))], uint64(random.IntN(60)), 1+random.IntN(3), g.keyed(g.bad, uint64(random.IntN(4))<<12))
	if m.opcode == fabrics.OpAsyncEvent { // the target answers it only when there is an event
		m.opcode = fabrics.OpAbort
	}
	for range random.IntN(3) {
		switch random.IntN(7) {
		case 0:
			m.flags = uint8(random.Uint32())
		case 1:
			m.namespace = random.Uint32()
		case 2:
			m.fabrics = []uint8{0, 1, 4, 8, uint8(random.Uint32())}[random.IntN(5)]
		case 3:
			m.words[2+random.IntN(4)] = random.Uint32() &^ 0xffff
		case 4:
			m.words[1] = random.Uint32() | 1<<31
		case 5:
			m.descriptor = make([]byte, 16)
			for i := range m.descriptor {
				m.descriptor[i] = byte(random.Uint32())
			}
		case 6:
			n := random.IntN(4097)
			m.data, m.inside = inside(0, uint32(random.IntN(8192))), make([]byte, n)
		}
	}
	return m
}
