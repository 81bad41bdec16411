package bpf

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/dispatcher"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestDispatchedDevice: a program for the card's clock cannot be in a dispatcher.
func TestDispatchedDevice(t *testing.T) {
	_, err := Load(Config{Queues: 1, Dispatcher: new(dispatcher.Interface), Timestamps: true, Device: 1})
	if err == nil || !strings.Contains(err.Error(), "card's clock") {
		t.Errorf("%v", err)
	}
}

// TestDispatchedNotAsked: who does not ask to join hears that there is a dispatcher, and how to join it.
func TestDispatchedNotAsked(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	setXDP(t, &pair.B, likeDispatcher(t), 0)
	before := programOn(t, &pair.B)
	err := attachTo(t, mustLoad(t, Config{}), &pair.B, Any)
	var named *ForeignError
	if !errors.As(err, &named) || !named.Dispatcher || !strings.Contains(err.Error(), "from.beside: libxdp") {
		t.Errorf("%v", err)
	}
	if after := programOn(t, &pair.B); after != before {
		t.Errorf("program %d is on the interface, %d was", after, before)
	}
}

// likeDispatcher is a program that says of itself what libxdp's dispatchers do.
func likeDispatcher(t *testing.T) *ebpf.Program {
	t.Helper()
	testenv.Root(t)
	value := make([]byte, 124)
	copy(value, []byte{236, 2, 1})
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "xdp_disp.rodata", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(value)), MaxEntries: 1,
		Flags: unix.BPF_F_RDONLY_PROG, Contents: []ebpf.MapKV{{Key: uint32(0), Value: value}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "xdp_dispatcher", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, m.FD(), 0), asm.LoadMem(asm.R0, asm.R1, 0, asm.Byte), asm.Mov.Imm(asm.R0, 2), asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestUnstamped: without its calls for room the program finds none, as on a driver that has none, and is whole otherwise: the verifier accepts it, and it does
// with packets what it did.
func TestUnstamped(t *testing.T) {
	spec, err := Config{Queues: 1, Timestamps: true}.prepare(all())
	if err != nil {
		t.Fatal(err)
	}
	program := spec.Programs[onlyProgram]
	had := calling(program.Instructions)
	program.Instructions = unstamped(program.Instructions)
	if left := calling(program.Instructions); had == 0 || left != 0 {
		t.Errorf("%d calls of %d are left", left, had)
	}
	collection, err := load(spec, &Selection{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	collection.Close()
}

// all is a table that wants every packet.
func all() *table {
	t := oneTable(Selection{})
	return &t
}

// calling is how often a program asks for room in front of a packet.
func calling(program asm.Instructions) (n int) {
	for _, ins := range program {
		if ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnXdpAdjustMeta {
			n++
		}
	}
	return n
}
