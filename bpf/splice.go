package bpf

import (
	"errors"

	"github.com/cilium/ebpf/asm"
)

// The functions whose bodies are replaced: by the filter, and by a call of the user's program.
const (
	filterSymbol = "unifiedd_filter"
	ownSymbol    = "unifiedd_own"
)

// The functions that filters with protochain call, the first of them.
const (
	chainSymbol = "unifiedd_chain"
	stepSymbol  = "unifiedd_step"
)

// splice returns the program with the body of one of its functions replaced. The first
// instruction keeps its name and its type information, which the verifier demands of a
// function.
func splice(program asm.Instructions, symbol string, body asm.Instructions) (asm.Instructions, error) {
	start, end := function(program, symbol)
	if start < 0 || len(body) == 0 {
		return nil, errNoFunction(symbol)
	}
	result := append(asm.Instructions{}, program[:start]...)
	result = append(result, body[0].WithMetadata(program[start].Metadata))
	result = append(result, body[1:]...)
	return append(result, program[end:]...), nil
}

func errNoFunction(symbol string) error {
	return errors.New("replace the filter: the compiled program has no function " + symbol)
}

// without leaves out those of the functions that nothing calls, which the verifier refuses.
func without(program asm.Instructions, names ...string) asm.Instructions {
	for _, name := range names {
		if start, end := function(program, name); start >= 0 && !calls(program, name) {
			program = append(program[:start], program[end:]...)
		}
	}
	return program
}

// calls reports whether a function of the program is called.
func calls(program asm.Instructions, name string) bool {
	for _, ins := range program {
		if ins.IsFunctionReference() && ins.Reference() == name {
			return true
		}
	}
	return false
}

// function returns where a function begins and ends, or -1.
func function(program asm.Instructions, name string) (start, end int) {
	start = -1
	for i, ins := range program {
		switch {
		case start >= 0 && ins.Symbol() != "":
			return start, i
		case ins.Symbol() == name:
			start = i
		}
	}
	return start, len(program)
}
