package wire

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/rdma"
)

// opcodeRows are the packets of the specification, volume 1, tables 38 and 39, written out: opcode, bytes of headers, and the
// properties by their first letters: S starts, E ends, P payload, R response, r RETH, a AETH, A atomic ETH, o original
// value, i immediate, v invalidate, d DETH.
var opcodeRows = []struct {
	o          Opcode
	name       string
	bytes      int
	properties string
}{
	{0x00, "SEND_FIRST", 12, "SP"}, {0x01, "SEND_MIDDLE", 12, "P"}, {0x02, "SEND_LAST", 12, "EP"}, {0x03, "SEND_LAST_IMMEDIATE", 16, "EPi"},
	{0x04, "SEND_ONLY", 12, "SEP"}, {0x05, "SEND_ONLY_IMMEDIATE", 16, "SEPi"}, {0x06, "WRITE_FIRST", 28, "SPr"}, {0x07, "WRITE_MIDDLE", 12, "P"},
	{0x08, "WRITE_LAST", 12, "EP"}, {0x09, "WRITE_LAST_IMMEDIATE", 16, "EPi"}, {0x0a, "WRITE_ONLY", 28, "SEPr"}, {0x0b, "WRITE_ONLY_IMMEDIATE", 32, "SEPri"},
	{0x0c, "READ_REQUEST", 28, "SEr"}, {0x0d, "READ_RESPONSE_FIRST", 16, "SPRa"}, {0x0e, "READ_RESPONSE_MIDDLE", 12, "PR"},
	{0x0f, "READ_RESPONSE_LAST", 16, "EPRa"}, {0x10, "READ_RESPONSE_ONLY", 16, "SEPRa"}, {0x11, "ACKNOWLEDGE", 16, "SERa"},
	{0x12, "ATOMIC_ACKNOWLEDGE", 24, "SERao"}, {0x13, "COMPARE_SWAP", 40, "SEA"}, {0x14, "FETCH_ADD", 40, "SEA"},
	{0x16, "SEND_LAST_INVALIDATE", 16, "EPv"}, {0x17, "SEND_ONLY_INVALIDATE", 16, "SEPv"},
	{0x64, "SEND_ONLY", 20, "SEPd"}, {0x65, "SEND_ONLY_IMMEDIATE", 24, "SEPdi"}, {0x81, "CNP", 12, "SEP"},
}

func properties(o Opcode) string {
	var b strings.Builder
	for _, p := range []struct {
		has    bool
		letter byte
	}{
		{o.Starts(), 'S'}, {o.Ends(), 'E'}, {o.CarriesPayload(), 'P'}, {o.IsResponse(), 'R'}, {o.HasRETH(), 'r'}, {o.HasAETH(), 'a'},
		{table[o].has(atomicETH), 'A'}, {table[o].has(atomicAck), 'o'}, {table[o].has(deth), 'd'}, {o.HasImmediate(), 'i'}, {o.HasInvalidate(), 'v'},
	} {
		if p.has {
			b.WriteByte(p.letter)
		}
	}
	return b.String()
}

func checkOpcode(t *testing.T, o Opcode, transport rdma.Transport, name string, bytes int, want string) {
	t.Helper()
	if !o.Known() || o.Transport() != transport || o.String() != name || o.HeaderBytes() != bytes || properties(o) != want {
		t.Errorf("0x%02x: %v of %v, %d bytes, %q; want %s of %v, %d, %q", uint8(o), o, o.Transport(), o.HeaderBytes(), properties(o),
			name, transport, bytes, want)
	}
	if o.IsLast() != (o.Ends() && !o.Starts()) {
		t.Errorf("%v is the last of several: %v", o, o.IsLast())
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestOpcodes(t *testing.T) {
	known := map[Opcode]bool{}
	for _, r := range opcodeRows {
		known[r.o] = true
		switch {
		case r.o == CNP:
			checkOpcode(t, r.o, 0, r.name, r.bytes, r.properties)
		case r.o >= UDSendOnly:
			checkOpcode(t, r.o, rdma.UD, "UD_"+r.name, r.bytes, r.properties)
		default:
			checkOpcode(t, r.o, rdma.RC, "RC_"+r.name, r.bytes, r.properties)
		}
		if r.o <= 0x0b {
			known[r.o+0x20] = true
			checkOpcode(t, r.o+0x20, rdma.UC, "UC_"+r.name, r.bytes, r.properties)
		}
	}
	for i := range 256 {
		if o := Opcode(i); o.Known() != known[o] || !known[o] && (o.HeaderBytes() != 0 || properties(o) != "" || o.Kind() != NoKind) {
			t.Errorf("%v: known %v, want %v; %d bytes, %q", o, o.Known(), known[o], o.HeaderBytes(), properties(o))
		}
	}
	if RCFetchAdd.HeaderBytes() != MaxHeaderBytes {
		t.Errorf("MaxHeaderBytes is %d", MaxHeaderBytes)
	}
}

// TestRequestOpcode: RequestOpcode returns an opcode that has the requested properties.
func TestRequestOpcode(t *testing.T) {
	kinds := map[rdma.Op]Kind{
		rdma.Send: Send, rdma.SendImmediate: Send, rdma.SendInvalidate: Send, rdma.Write: Write, rdma.WriteImmediate: Write,
		rdma.Read: ReadRequest, rdma.CompareSwap: CompareSwap, rdma.FetchAdd: FetchAdd, rdma.LocalInvalidate: NoKind,
	}
	for _, transport := range []rdma.Transport{0, rdma.RC, rdma.UC, rdma.UD} {
		for op, kind := range kinds {
			for i := range 4 {
				first, last := i&1 != 0, i&2 != 0
				o, ok := RequestOpcode(transport, op, first, last)
				one := kind == ReadRequest || kind == CompareSwap || kind == FetchAdd
				if want := transport.Allows(op) && kind != NoKind && (transport != rdma.UD || first && last); ok != want {
					t.Errorf("%v %v %v %v: %v, want %v", transport, op, first, last, ok, want)
				}
				if !ok {
					continue
				}
				if o.Transport() != transport || o.Kind() != kind || o.Starts() != (first || one) || o.Ends() != (last || one) ||
					o.HasImmediate() != (last && (op == rdma.SendImmediate || op == rdma.WriteImmediate)) ||
					o.HasInvalidate() != (last && op == rdma.SendInvalidate) {
					t.Errorf("%v %v first %v last %v: %v", transport, op, first, last, o)
				}
			}
		}
	}
}

func TestReadResponseOpcode(t *testing.T) {
	for i := range 4 {
		first, last := i&1 != 0, i&2 != 0
		if o := ReadResponseOpcode(first, last); o.Kind() != ReadResponse || o.Starts() != first || o.Ends() != last {
			t.Errorf("first %v last %v: %v", first, last, o)
		}
	}
}
