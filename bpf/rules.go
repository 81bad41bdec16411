package bpf

import (
	"cmp"
	"fmt"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/unifiedd/unifiedd/bpf/filter"
)

// spliceRules returns the program with one more function for each rule, and a filter function that
// calls them in order.
func spliceRules(program asm.Instructions, t *table) (asm.Instructions, error) {
	start, _ := function(program, filterSymbol)
	if start < 0 || btf.FuncMetadata(&program[start]) == nil {
		return nil, errNoFunction(filterSymbol)
	}
	kind, model := btf.FuncMetadata(&program[start]), program[start].Metadata // with a line, which the verifier demands too
	program, err := splice(program, filterSymbol, askRules(t))
	if err != nil {
		return nil, err
	}
	for i, r := range t.Rules {
		body, err := cmp.Or(r.Match, &filter.Expr{}).Instructions()
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.Name, err)
		}
		named := *kind
		named.Name = ruleSymbol(i)
		body[0] = btf.WithFuncMetadata(body[0].WithMetadata(model).WithSymbol(named.Name), &named)
		program = append(program, body...)
	}
	return program, nil
}

func ruleSymbol(i int) string { return fmt.Sprintf("%s_%d", filterSymbol, i) }

// askRules is the body of the filter function. It returns the action of the first rule that
// matches, the rule's number, from 1, and the seat. If no rule matches, the kernel gets the packet.
func askRules(t *table) asm.Instructions {
	const packet, length, result = asm.R6, asm.R7, asm.R0 // the first two stay over calls
	body := asm.Instructions{asm.Mov.Reg(packet, asm.R1), asm.Mov.Reg(length, asm.R2)}
	for i, r := range t.Rules {
		goOn := asm.JEq.Imm(result, 0, "")
		goOn.Offset = 2 // skips the next two
		body = append(body,
			asm.Mov.Reg(asm.R1, packet),
			asm.Mov.Reg(asm.R2, length),
			call(ruleSymbol(i)),
			goOn,
			asm.Mov.Imm(result, int32(t.seat(i)<<seatShift|t.numbers[i]<<decisionBits|int(r.Action))),
			asm.Return(),
		)
	}
	return append(body, asm.Mov.Imm(result, int32(Leave)), asm.Return())
}

// call calls a function of the program.
func call(symbol string) asm.Instruction {
	return asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoCall, Constant: -1}.WithReference(symbol)
}

// RuleCounter is a rule and the packets that it has matched.
type RuleCounter struct {
	Rule
	Counter
}

// RuleCountersOf returns how many packets each rule of a seat's selection has matched since the
// selection came into force; nil if it has no rules.
func (p *Program) RuleCountersOf(seat int) ([]RuleCounter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.program == nil {
		return nil, fmt.Errorf("read the counters of rules: %w", ErrClosed)
	}
	rules, numbers := p.decides.rulesOf(seat)
	all := make([]RuleCounter, len(rules))
	for i, r := range rules {
		n, err := p.sum(p.maps.rules, uint32(numbers[i]))
		if err != nil {
			return nil, fmt.Errorf("read the counter of rule %s: %w", r.Name, err)
		}
		all[i] = RuleCounter{r, n}
	}
	return all, nil
}

// MaxRules bounds the rules of a Selection.
const MaxRules = 64

// Selection says which packets to accept, in one of three ways: an expression, rules, or a program
// of the user's own. The zero value accepts every packet.
type Selection struct {
	// Filter accepts the wanted packets. Nil accepts all packets.
	Filter *filter.Expr
	// Rules are evaluated in order, and the first that matches a packet decides. The kernel gets
	// packets that no rule matches. At most [MaxRules].
	Rules []Rule
	// Own is the program that decides.
	Own *Object
}

// Rule decides about the packets that it matches, and counts them.
type Rule struct {
	Name   string
	Match  *filter.Expr // nil matches every packet
	Action Action
}

// Action says what happens to a packet.
type Action uint8

// The actions. The numbers are those of enum decision in unifiedd.bpf.c.
const (
	// Leave leaves packets to the kernel.
	Leave Action = iota
	// Take passes packets to the socket of their queue.
	Take
	// Drop drops packets: neither the socket nor the kernel gets them.
	Drop
)

// String is the action's name.
func (a Action) String() string {
	return [...]string{Leave: "leave", Take: "take", Drop: "drop"}[min(a, Drop)]
}

// decisionBits is the bit position of the rule's number, above its action.
const decisionBits = 8

// seatShift is the bit position of the seat, above both.
const seatShift = 16

// check checks the selection.
func (s *Selection) check() error {
	ways := 0
	for _, there := range []bool{s.Filter != nil, s.Rules != nil, s.Own != nil} {
		if there {
			ways++
		}
	}
	switch {
	case ways > 1:
		return fmt.Errorf("load XDP program: a filter, rules and a program of the user's own exclude each other: give one of them")
	case len(s.Rules) > MaxRules:
		return fmt.Errorf("load XDP program: %d rules: give %d at most", len(s.Rules), MaxRules)
	}
	for _, r := range s.Rules {
		if r.Action > Drop {
			return fmt.Errorf("load XDP program: rule %s has the action %d: give Leave, Take or Drop", r.Name, r.Action)
		}
	}
	return nil
}

// String describes the selection for messages; empty if it accepts every packet.
func (s *Selection) String() string {
	switch {
	case s.Own != nil:
		return s.Own.String()
	case s.Rules != nil:
		return fmt.Sprintf("%d rules", len(s.Rules))
	case s.Filter != nil:
		return s.Filter.String()
	}
	return ""
}
