package bpf

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/dispatcher"
	"github.com/unifiedd/unifiedd/internal/osthread"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestDispatchedDevice: a program that reads the card's clock cannot join a dispatcher.
func TestDispatchedDevice(t *testing.T) {
	_, err := Load(Config{Queues: 1, Dispatcher: new(dispatcher.Interface), Timestamps: true, Device: 1})
	if err == nil || !strings.Contains(err.Error(), "card's clock") {
		t.Errorf("%v", err)
	}
}

// TestDispatchedNotAsked: the error for a program that does not ask to join names the dispatcher and says how
// to join it.
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

// likeDispatcher is a program with the type information of libxdp's dispatchers.
func likeDispatcher(t *testing.T) *ebpf.Program {
	t.Helper()
	testenv.Root(t)
	value := make([]byte, 124)
	copy(value, []byte{236, 2, 1})
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "xdp_disp.rodata", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(value)), MaxEntries: 1,
		Flags: unix.BPF_F_RDONLY_PROG, Contents: []ebpf.MapKV{{Key: uint32(0), Value: value}},
	})
	testenv.Must(t, err)
	defer m.Close()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "xdp_dispatcher", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, m.FD(), 0), asm.LoadMem(asm.R0, asm.R1, 0, asm.Byte), asm.Mov.Imm(asm.R0, 2), asm.Return(),
		},
	})
	testenv.Must(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// loadChanged loads a program that has the interface to itself, after change has edited it.
func loadChanged(t *testing.T, c Config, change func(*ebpf.CollectionSpec)) *Program {
	t.Helper()
	testenv.Root(t)
	s := oneTable(c.selection())
	s.number(&table{})
	spec, err := c.prepare(&s)
	testenv.Must(t, err)
	change(spec)
	collection, err := load(spec, &s.Selection, nil)
	testenv.Must(t, err)
	defer collection.Close()
	refused, err := mapWord(collection.Maps[statusMap], spec.Variables[captureVarMetaRefused].Offset)
	testenv.Must(t, err)
	p, err := newProgram(c, s, spec, collection, refused, osthread.Namespace{})
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Check(t, p.Close()) })
	return p
}

// TestUnstamped: a program without its calls for headroom writes no timestamps, reports that, and decides on
// packets as before.
func TestUnstamped(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	p := loadChanged(t, Config{Queues: 1, Timestamps: true}, func(spec *ebpf.CollectionSpec) {
		program := spec.Programs[onlyProgram]
		had := calling(program.Instructions)
		program.Instructions = unstamped(program.Instructions)
		if left := calling(program.Instructions); had == 0 || left != 0 {
			t.Errorf("%d calls of %d are left", left, had)
		}
	})
	testenv.Must(t, attachTo(t, p, &pair.B, Driver))
	socket := newXSK(t, &pair.B, 0)
	testenv.Must(t, p.SetSocketOf(0, 0, socket.fd))
	if p.MetaRefused() {
		t.Error("refused before a packet came")
	}
	sent := testenv.UDP(&pair.A, &pair.B, 7, 0, 100)
	testenv.SendRaw(t, &pair.A, [][]byte{sent}, testenv.SendOptions{})
	awaitTotal(t, p, 1)
	if packets, stamps := socket.received(); len(packets) != 1 || !bytes.Equal(packets[0], sent) || stamps[0] != 0 {
		t.Errorf("%d packets arrived, stamps %v", len(packets), stamps)
	}
	if !p.MetaRefused() {
		t.Error("it does not say that there are no timestamps")
	}
}

// TestDispatchedDrops: in a dispatcher, where the program may outlive its process, it drops packets only of
// queues with a socket.
func TestDispatchedDrops(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	p := loadChanged(t, Config{Queues: 1, Rules: []Rule{{Name: "all", Action: Drop}}}, func(spec *ebpf.CollectionSpec) {
		testenv.Must(t, spec.Variables[captureVarDispatched].Set(uint8(1)))
	})
	testenv.Must(t, attachTo(t, p, &pair.B, Driver))
	frames := slices.Repeat([][]byte{testenv.UDP(&pair.A, &pair.B, 7, 0, 100)}, 5)
	testenv.SendRaw(t, &pair.A, frames, testenv.SendOptions{})
	if got := awaitTotal(t, p, 5); got[NoSocket].Packets != 5 {
		t.Errorf("without a socket: %+v", got)
	}
	socket := newXSK(t, &pair.B, 0)
	testenv.Must(t, p.SetSocketOf(0, 0, socket.fd))
	testenv.SendRaw(t, &pair.A, frames, testenv.SendOptions{})
	if got := awaitTotal(t, p, 10); got[Dropped].Packets != 5 {
		t.Errorf("with a socket: %+v", got)
	}
	if err := p.ClearSocketOf(0, 0); err != nil { // as the kernel does when the process ends
		t.Fatal(err)
	}
	testenv.SendRaw(t, &pair.A, frames, testenv.SendOptions{})
	if got := awaitTotal(t, p, 15); got[NoSocket].Packets != 10 || got[Dropped].Packets != 5 {
		t.Errorf("without it again: %+v", got)
	}
}

// calling counts how often a program asks for room in front of a packet.
func calling(program asm.Instructions) (n int) {
	for _, ins := range program {
		if ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnXdpAdjustMeta {
			n++
		}
	}
	return n
}
