package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

const ownObject = "testdata/own.o"

func mustRead(t testing.TB, program string) *Object {
	t.Helper()
	o, err := ReadObject(ownObject, program)
	testenv.Must(t, err)
	return o
}

// datagram is a packet of UDP to a port.
func datagram(port uint16) []byte {
	return pad(ethernet(poolMAC[0], poolMAC[1], nil, 0x0800, ipv4("10.0.0.1", "10.0.0.2", 17, 0, 0, ports(1, port))))
}

// TestOwnProgramDecides: the return value of the user's program decides about a packet, and the
// program's own counters are reported.
func TestOwnProgramDecides(t *testing.T) {
	own := mustRead(t, "by_port")
	p := mustLoad(t, Config{Own: own, MultiBuffer: own.Fragments(), Timestamps: true})
	for port, want := range map[uint16]Verdict{7000: NoSocket, 7001: Dropped, 7002: Unclear, 7003: NoMatch, 6999: NoMatch} {
		if got := run(t, p, datagram(port)); got != want {
			t.Errorf("port %d: %v, want %v", port, got, want)
		}
	}
	got, err := p.OwnCounters()
	want := []OwnCounter{{"TAKEN", 1}, {"LEFT", 2}, {"DROPPED", 1}, {"STRANGE", 1}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestSelectionsTakeTurns: Select can replace any kind of selection by any other, and the verdicts'
// counters continue.
func TestSelectionsTakeTurns(t *testing.T) {
	p := mustLoad(t, Config{})
	rules := []Rule{{"first", mustParse(t, "udp dst port 7003"), Take}}
	for i, c := range []struct {
		s    Selection
		want Verdict // of port 7003
	}{
		{Selection{Own: mustRead(t, "one_buffer")}, NoMatch},
		{Selection{Rules: rules}, NoSocket},
		{Selection{}, NoSocket},
		{Selection{Own: mustRead(t, "by_port")}, NoMatch},
		{Selection{Filter: mustParse(t, "tcp")}, NoMatch},
		{Selection{Rules: rules}, NoSocket},
	} {
		testenv.Must(t, p.Select(c.s))
		if got := run(t, p, datagram(7003)); got != c.want {
			t.Errorf("selection %d: %v, want %v", i, got, c.want)
		}
		if n := mustCount(t, p).Total().Packets; n != uint64(i+1) {
			t.Errorf("selection %d: %d packets counted in all", i, n)
		}
		counted, err := p.RuleCountersOf(0)
		if err != nil || len(counted) != len(c.s.Rules) || len(counted) > 0 && counted[0].Packets != 1 {
			t.Errorf("selection %d: %v, %v", i, counted, err)
		}
		own, err := p.OwnCounters()
		if err != nil || (len(own) > 0) != (c.s.Own != nil) || len(own) > 0 && own[1].Value != 1 {
			t.Errorf("selection %d: %v, %v", i, own, err)
		}
	}
}

// TestOwnProgramRefused: the error names the mistake and the remedy, and the earlier selection
// stays.
func TestOwnProgramRefused(t *testing.T) {
	for program, want := range map[string]string{
		"by_prot":    "there is no such program (there is: by_port, moves_head, of_socket, one_buffer, reads_behind)",
		"of_socket":  `it is in section "socket": put it into "xdp.frags"`,
		"moves_head": "it calls FnXdpAdjustHead, and a filter leaves the packet as it is",
	} {
		if _, err := ReadObject(ownObject, program); !errors.Is(err, ErrObject) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", program, err)
		}
	}
	if _, err := ReadObject("testdata/own.bpf.c", "by_port"); !errors.Is(err, ErrObject) || !strings.Contains(err.Error(), "no object that can be read") {
		t.Error(err)
	}
	if _, err := ReadObject("testdata/none.o", "by_port"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	p := mustLoad(t, Config{MultiBuffer: true, Filter: mustParse(t, "udp")})
	if err := p.Select(Selection{Own: mustRead(t, "one_buffer")}); !errors.Is(err, ErrObject) || !strings.Contains(err.Error(), `section "xdp.frags"`) {
		t.Error(err)
	}
	err := p.Select(Selection{Own: mustRead(t, "reads_behind")})
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "program reads_behind of "+ownObject) || !strings.Contains(err.Error(), "*(u8 *)(r1 +0)") {
		t.Error(err)
	}
	t.Log(err)
	if got := run(t, p, datagram(1)); got != NoSocket {
		t.Errorf("the filter before is gone: %v", got)
	}
}

// TestOwnObjectIsChecked: ReadObject checks the licence, type information and maps of modified
// objects.
func TestOwnObjectIsChecked(t *testing.T) {
	for what, c := range map[string]struct {
		change func([]byte) []byte
		want   string
	}{
		"licence":  {func(elf []byte) []byte { return bytes.Replace(elf, []byte("GPL\x00"), []byte("BSD\x00"), 1) }, `its licence is "BSD"`},
		"no BTF":   {func(elf []byte) []byte { return bytes.ReplaceAll(elf, []byte(".BTF"), []byte(".XTF")) }, "-g"},
		"map":      {func(elf []byte) []byte { return mapOf(t, elf, ebpf.PerCPUArray, ebpf.ProgramArray) }, "its map counters is a ProgramArray"},
		"counters": {func(elf []byte) []byte { return mapOf(t, elf, ebpf.PerCPUArray, ebpf.PerCPUHash) }, "it must be an array"},
		"cut":      {func(elf []byte) []byte { return elf[:len(elf)/2] }, "no object that can be read"},
	} {
		elf, err := os.ReadFile(ownObject)
		testenv.Must(t, err)
		name := filepath.Join(t.TempDir(), "own.o")
		testenv.Must(t, os.WriteFile(name, c.change(elf), 0o600))
		if _, err := ReadObject(name, "by_port"); !errors.Is(err, ErrObject) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// mapOf changes the type of a map. The type information encodes the map type as the length of an
// array, which follows the element type and the index type.
func mapOf(t *testing.T, elf []byte, from, to ebpf.MapType) []byte {
	t.Helper()
	const array = 3 << 24
	for at := 0; at+24 <= len(elf); at += 4 {
		word := func(i int) uint32 { return binary.LittleEndian.Uint32(elf[at+4*i:]) }
		if word(0) == 0 && word(1) == array && word(2) == 0 && word(5) == uint32(from) {
			elf = bytes.Clone(elf)
			binary.LittleEndian.PutUint32(elf[at+20:], uint32(to))
			return elf
		}
	}
	t.Fatal("no map of that type")
	return nil
}

// TestFirstRuleDecides: for each action, the first rule that matches a packet decides and counts
// it.
func TestFirstRuleDecides(t *testing.T) {
	p := mustLoad(t, Config{Rules: []Rule{
		{"left", mustParse(t, "udp dst port 2"), Leave},
		{"dropped", mustParse(t, "udp dst portrange 2-3"), Drop},
		{"taken", mustParse(t, "udp dst portrange 1-5"), Take},
		{"tcp", mustParse(t, "tcp"), Take},
	}})
	for port, want := range map[uint16]Verdict{1: NoSocket, 2: NoMatch, 3: Dropped, 4: NoSocket, 5: NoSocket, 6: NoMatch} {
		if got := run(t, p, datagram(port)); got != want {
			t.Errorf("port %d: %v, want %v", port, got, want)
		}
	}
	size := uint64(len(datagram(1)))
	rules, err := p.RuleCountersOf(0)
	var got []Counter
	for _, r := range rules {
		got = append(got, r.Counter)
	}
	if diff := cmp.Diff([]Counter{{1, size}, {1, size}, {3, 3 * size}, {}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestManyRules: MaxRules rules work, and the last one matches every packet.
func TestManyRules(t *testing.T) {
	rules := make([]Rule, MaxRules)
	for i := range rules {
		rules[i] = Rule{"r", mustParse(t, "tcp dst port 1 or udp dst port 99 and host 10.9.9.9"), Drop}
	}
	rules[MaxRules-1] = Rule{"rest", nil, Take}
	p := mustLoad(t, Config{Rules: rules})
	if got := run(t, p, datagram(99)); got != NoSocket {
		t.Error(got)
	}
	if c, err := p.RuleCountersOf(0); err != nil || c[MaxRules-1].Packets != 1 {
		t.Errorf("%v, %v", c, err)
	}
	testenv.Root(t)
	for _, c := range []Config{
		{Queues: 1, Rules: append(rules, Rule{})},
		{Queues: 1, Rules: []Rule{{"odd", nil, 3}}},
		{Queues: 1, Rules: rules, Filter: mustParse(t, "tcp")},
	} {
		if p, err := Load(c); err == nil {
			p.Close()
			t.Errorf("%+v was loaded", c)
		}
	}
}
