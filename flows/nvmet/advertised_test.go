package nvmet

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// advertised is a field of Identify that is not zero. does tries what the field promises. Fields
// that only describe have no does.
type advertised struct {
	at, length int
	name       string // in parentheses: some disks have none
	does       func(h *handMade, value uint64)
}

// refuses checks the status of a command that the target refuses.
func (q *hostQueue) refuses(c *message, want fabrics.Status) {
	q.Helper()
	if got := q.ask(c); got.Status.Code() != want {
		q.Errorf("command %#x: %v, not %v", c.opcode, got.Status, want)
	}
}

// bitsAre checks that a field has exactly these bits. does tries them.
func bitsAre(want uint64, does func(h *handMade)) func(*handMade, uint64) {
	return func(h *handMade, value uint64) {
		h.Helper()
		if value != want {
			h.Errorf("it is %#b, and %#b are tried here", value, want)
		}
		does(h)
	}
}

const optional = 1<<0 | 1<<2 | 1<<3 // ONCS: Compare, Dataset Management, Write Zeroes

var ofController = []advertised{
	{4, 20, "SN", nil}, {24, 40, "MN", nil}, {64, 8, "FR", nil}, {72, 1, "RAB", nil},
	{76, 1, "CMIC: several addresses and controllers, ANA", bitsAre(1<<0|1<<1|1<<3, func(h *handMade) {
		h.connects(softHost, 1, 32).queues[0].succeeds(blocks(fabrics.OpRead, 0, 1, h.keyed(h.room(4096), 4096)))
	})},
	{77, 1, "MDTS: the longest transfer", func(h *handMade, value uint64) {
		n := 1 << value
		h.queues[0].succeeds(blocks(fabrics.OpRead, 0, n, h.keyed(h.room(uint64(n)<<12), uint64(n)<<12)))
		h.queues[0].refuses(blocks(fabrics.OpRead, 0, n+1, h.keyed(0, uint64(n+1)<<12)), fabrics.InvalidField)
	}},
	{78, 2, "CNTLID", func(h *handMade, value uint64) {
		if value != uint64(h.controller) {
			h.Errorf("controller %d says that it is %d", h.controller, value)
		}
	}},
	{80, 4, "VER", func(h *handMade, value uint64) {
		if got := h.admin.succeeds(&message{opcode: fabrics.OpFabrics, fabrics: fabrics.PropertyGet, words: [6]uint32{0, 0x08}}); got.Result != value {
			h.Errorf("the property says %#x", got.Result)
		}
	}},
	{92, 4, "OAES: namespaces and ANA states that change", bitsAre(1<<8|1<<11, func(*handMade) {})}, // tested by TestChange and TestTwoPaths
	{96, 4, "CTRATT: host identifiers of 128 bits, and any command keeps alive", bitsAre(1<<0|1<<6, func(h *handMade) { // the latter is TestKeepAlive's
		at := h.room(16)
		h.admin.succeeds(&message{opcode: fabrics.OpGetFeatures, data: h.keyed(at, 16), words: [6]uint32{0x81, 1}})
		if got := string(h.bytes(at, 16)); got != "0123456789abcdef" {
			h.Errorf("the host is %q", got)
		}
	})},
	{111, 1, "CNTRLTYPE", bitsAre(1, func(*handMade) {})},
	{258, 1, "ACL: aborts", func(h *handMade, value uint64) {
		for range value + 1 {
			if got := h.admin.succeeds(&message{opcode: fabrics.OpAbort}); got.Result != 1 {
				h.Errorf("Abort says %#x: that the command was aborted", got.Result)
			}
		}
	}},
	{259, 1, "AERL: asynchronous event requests", func(h *handMade, value uint64) {
		q := h.admin
		for range value + 2 {
			q.sent++
			q.must(q.say((&message{opcode: fabrics.OpAsyncEvent}).append(nil, q.sent)))
		}
		if got, err := q.hear(); err != nil || got.ID != q.sent || got.Status.Code() != fabrics.AsyncEventLimit {
			h.Errorf("of %d requests, %d: %v, %v", value+2, got.ID, got.Status, err)
		}
	}},
	{260, 1, "FRMW: one slot, read-only", bitsAre(0x03, func(h *handMade) {
		h.admin.succeeds(&message{opcode: fabrics.OpGetLogPage, data: h.keyed(h.room(512), 512), words: [6]uint32{127<<16 | 0x03}})
	})},
	{261, 1, "LPA: log pages in parts", bitsAre(1<<2, func(h *handMade) {
		at := h.room(64)
		h.admin.succeeds(&message{opcode: fabrics.OpGetLogPage, data: h.keyed(at, 16), words: [6]uint32{3<<16 | 0x02, 0, 4}})
	})},
	{342, 1, "ANATT", nil},
	{343, 1, "ANACAP: optimized, non-optimized, inaccessible", bitsAre(1<<0|1<<1|1<<2, func(h *handMade) { // tested by TestTwoPaths
		h.admin.succeeds(&message{opcode: fabrics.OpGetLogPage, data: h.keyed(h.room(4096), 4096), words: [6]uint32{1023<<16 | anaPage}})
	})},
	{344, 4, "ANAGRPMAX", bitsAre(fabrics.MaxNamespace, func(*handMade) {})}, {348, 4, "NANAGRPID", bitsAre(fabrics.MaxNamespace, func(*handMade) {})},
	{540, 4, "MNAN", bitsAre(fabrics.MaxNamespace, func(*handMade) {})},
	{320, 2, "KAS", nil}, {512, 1, "SQES", bitsAre(0x66, func(*handMade) {})}, {513, 1, "CQES", bitsAre(0x44, func(*handMade) {})},
	{514, 2, "MAXCMD: entries of a queue", func(h *handMade, value uint64) {
		depth := int(value)
		q, err := h.dial(depth, fabrics.PrivateRequest{Queue: 2, HostRoom: uint16(depth), HostSends: uint32(depth)}.Bytes())
		h.must(err)
		q.succeeds(connectCommand(2, depth, connectData(softHost, softNQN, h.controller)))
	}},
	{516, 4, "NN: the highest namespace", func(h *handMade, value uint64) {
		if value != fabrics.MaxNamespace {
			h.Errorf("it is %d", value)
		}
	}},
	{520, 2, "ONCS: Compare, Dataset Management, Write Zeroes", bitsAre(optional, func(h *handMade) {
		at := h.room(8192)
		zeroes := blocks(fabrics.OpWriteZeroes, 7, 1, fabrics.Data{})
		for _, deallocate := range []uint32{0, 1 << 25} {
			zeroes.words[2] |= deallocate
			copy(h.bytes(at, 4), "data")
			h.queues[0].succeeds(blocks(fabrics.OpWrite, 7, 1, h.keyed(at, 4096)))
			h.queues[0].succeeds(blocks(fabrics.OpCompare, 7, 1, h.keyed(at, 4096)))
			h.queues[0].succeeds(zeroes)
			h.queues[0].refuses(blocks(fabrics.OpCompare, 7, 1, h.keyed(at, 4096)), fabrics.CompareFailure.Code())
		}
		clear(h.bytes(at, 16))
		binary.LittleEndian.PutUint32(h.bytes(at, 16)[4:], 1)
		h.queues[0].succeeds(&message{opcode: fabrics.OpDataset, namespace: 1, data: h.keyed(at, 16), words: [6]uint32{0, 1 << 2}})
	})},
	{525, 1, "VWC: a cache, and flushes of one namespace", bitsAre(1<<0|2<<1, func(h *handMade) {
		h.queues[0].succeeds(&message{opcode: fabrics.OpFlush, namespace: 1})
		h.queues[0].refuses(&message{opcode: fabrics.OpFlush, namespace: 0xffffffff}, fabrics.InvalidNamespace)
		if got := h.admin.succeeds(&message{opcode: fabrics.OpGetFeatures, words: [6]uint32{0x06}}); got.Result != 1 {
			h.Errorf("the write cache is %d", got.Result)
		}
	})},
	{536, 4, "SGLS: keyed, and offsets in capsules", bitsAre(1<<0|1<<2|1<<20, func(h *handMade) {
		h.queues[0].succeeds(&message{opcode: fabrics.OpWrite, namespace: 1, data: fabrics.Data{Place: fabrics.InCapsule, Length: 4096}, inside: make([]byte, 4096), words: [6]uint32{9}})
	})},
	{768, 256, "SUBNQN", nil},
	{1792, 4, "IOCCSZ", bitsAre((64+4096)/16, func(*handMade) {})}, {1796, 4, "IORCSZ", bitsAre(1, func(*handMade) {})}, {1803, 1, "MSDBD", bitsAre(1, func(*handMade) {})},
}

var ofNamespace = []advertised{
	{0, 8, "NSZE", func(h *handMade, value uint64) {
		at := h.room(4096)
		h.queues[0].succeeds(blocks(fabrics.OpRead, value-1, 1, h.keyed(at, 4096)))
		h.queues[0].refuses(blocks(fabrics.OpRead, value, 1, h.keyed(at, 4096)), fabrics.LBAOutOfRange)
	}},
	{8, 8, "NCAP", nil}, {16, 8, "NUSE", nil},
	{24, 1, "(NSFEAT) what is preferred", bitsAre(1<<4, func(*handMade) {})},
	{30, 1, "NMIC: several controllers", bitsAre(1, func(*handMade) {})},                 // tested by CMIC
	{33, 1, "DLFEAT: Write Zeroes gives blocks back", bitsAre(1<<3, func(*handMade) {})}, // tested by ONCS
	{64, 8, "(NPWG to NPDA)", nil}, {92, 4, "ANAGRPID", bitsAre(1, func(*handMade) {})}, {104, 16, "NGUID", nil},
	{130, 1, "LBADS", bitsAre(12, func(*handMade) {})},
}

// TestAdvertised: the target does everything that Identify promises for a controller and a
// namespace. Each byte that is not zero must belong to a field in the lists.
func TestAdvertised(t *testing.T) {
	r, s := newSoftRig(t)
	c := softConfig(r)
	c.Queues = 3
	r.serve(c)
	h := s.connects(softHost, 1, 32)
	at := s.room(2 * fabrics.IdentifyLen)
	for i, of := range []struct {
		what   string
		cns    uint32
		fields []advertised
	}{{"namespace", 0, ofNamespace}, {"controller", 1, ofController}} {
		at := at + uint64(i)*fabrics.IdentifyLen
		h.admin.succeeds(&message{opcode: fabrics.OpIdentify, namespace: 1 - of.cns, data: s.keyed(at, fabrics.IdentifyLen), words: [6]uint32{of.cns}})
		b := append([]byte(nil), s.bytes(at, fabrics.IdentifyLen)...)
		for _, f := range of.fields {
			value := b[f.at : f.at+f.length]
			if strings.Trim(string(value), "\x00") == "" {
				if f.name[0] != '(' {
					t.Errorf("%s: %s says nothing, and is listed", of.what, f.name)
				}
				continue
			}
			if f.does != nil {
				var word [8]byte
				copy(word[:], value)
				t.Run(fmt.Sprintf("%s/%s", of.what, f.name), func(t *testing.T) {
					h.station.rig.T = t
					f.does(h, binary.LittleEndian.Uint64(word[:]))
				})
				h.station.rig.T = s.T
			}
			clear(value)
		}
		for i, v := range b {
			if v != 0 {
				t.Errorf("%s: byte %d is %#x, of no field that is tried", of.what, i, v)
			}
		}
	}
}
