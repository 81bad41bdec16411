package bpf

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/unifiedd/unifiedd/bpf/dispatcher"
)

// TestDispatchedDevice: a program for the card's clock cannot be in a dispatcher.
func TestDispatchedDevice(t *testing.T) {
	_, err := Load(Config{Queues: 1, Dispatcher: new(dispatcher.Interface), Timestamps: true, Device: 1})
	if err == nil || !strings.Contains(err.Error(), "card's clock") {
		t.Errorf("%v", err)
	}
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
