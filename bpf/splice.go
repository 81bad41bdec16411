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
