package filter

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// compiled is the XDP program that fills the struct this package reads.
const compiled = "../capture_bpfel.o"

func TestLayoutIsThatOfTheProgram(t *testing.T) {
	spec, err := ebpf.LoadCollectionSpec(compiled)
	if err != nil {
		t.Fatal(err)
	}
	var parsed *btf.Struct
	if err := spec.Types.TypeByName("parsed", &parsed); err != nil {
		t.Fatal(err)
	}
	type place struct{ offset, size int }
	want := map[string]place{
		"src6": {offSrc6, 16}, "dst6": {offDst6, 16}, "src4": {offSrc4, 4}, "dst4": {offDst4, 4},
		"eth_dst": {offEthDst, 8}, "eth_src": {offEthSrc, 8}, "flags": {offFlags, 4},
		"ethertype": {offEthertype, 2}, "vlan": {offVLAN0, 2 * (offVLAN1 - offVLAN0)},
		"src_port": {offSrcPort, 2}, "dst_port": {offDstPort, 2}, "tags": {offTags, 1}, "proto": {offProto, 1},
	}
	for _, m := range parsed.Members {
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			t.Fatal(err)
		}
		if got := (place{int(m.Offset.Bytes()), size}); got != want[m.Name] {
			t.Errorf("%s is %+v in the program, %+v here", m.Name, got, want[m.Name])
		}
		delete(want, m.Name)
	}
	if len(want) != 0 {
		t.Errorf("not in the program: %v", want)
	}
}

func TestFlagsAreThoseOfTheProgram(t *testing.T) {
	spec, err := ebpf.LoadCollectionSpec(compiled)
	if err != nil {
		t.Fatal(err)
	}
	var flags *btf.Enum
	if err := spec.Types.TypeByName("parsed_flag", &flags); err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{
		"PARSED_ETHER": flagEther, "PARSED_IPV4": flagIPv4, "PARSED_IPV6": flagIPv6,
		"PARSED_PROTO": flagProto, "PARSED_PORTS": flagPorts,
	}
	for _, v := range flags.Values {
		if want[v.Name] != v.Value {
			t.Errorf("%s is %d in the program, %d here", v.Name, v.Value, want[v.Name])
		}
	}
	if len(flags.Values) != len(want) {
		t.Errorf("the program has %d flags, this package %d", len(flags.Values), len(want))
	}
}
