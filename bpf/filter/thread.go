package filter

import "slices"

// fact says how the code with this id compares with value.
type fact struct {
	id    int
	how   compare
	value uint32
	holds bool
}

// maxFacts is how many facts are kept on a path. The first facts stay: they are about the type of
// the frame, which most later tests check again.
const maxFacts = 12

// threader routes every path past the tests whose answer is known on it. A path leaves out a test
// only if it has already run the same code, so it reads no additional bytes.
type threader struct {
	program
	facts   [][]fact // at the start of each block that is reached
	reached []bool
}

// shorten removes tests that make no difference, until none is left. It removes a test whose two
// answers lead to the same place, and with it the test's read, as libpcap does. The read is part of
// the meaning of an expression: it rejects a packet that ends too early. With protochain libpcap
// removes nothing, and neither does shorten.
func shorten(p program) program {
	for whole := chains(p); ; {
		before := len(p.blocks)
		if p = thread(p); !whole {
			p = thread(collapse(p))
		}
		if len(p.blocks) == before {
			return p
		}
	}
}

func chains(p program) bool {
	return slices.ContainsFunc(p.blocks, func(b block) bool {
		return slices.ContainsFunc(b.code, func(i instr) bool { return i.op == opChain })
	})
}

// collapse routes paths past tests whose answer makes no difference.
func collapse(p program) program {
	past := func(to int) int {
		for to >= 0 && p.blocks[to].yes == p.blocks[to].no && !p.blocks[to].keeps() {
			to = p.blocks[to].yes
		}
		return to
	}
	for i := range slices.Backward(p.blocks) {
		p.blocks[i].yes, p.blocks[i].no = past(p.blocks[i].yes), past(p.blocks[i].no)
	}
	p.entry = past(p.entry)
	return p
}

// keeps reports whether a test stores something that later tests may read.
func (l *leaf) keeps() bool {
	return l.id == 0 && slices.ContainsFunc(l.code, func(i instr) bool { return i.op == opSt })
}

// thread shortens the paths through a program and removes the blocks that no path reaches.
func thread(p program) program {
	t := &threader{program: p, facts: make([][]fact, len(p.blocks)), reached: make([]bool, len(p.blocks))}
	t.entry = t.follow(p.entry, nil)
	for i := range t.blocks {
		b := &t.blocks[i]
		if !t.reached[i] {
			continue
		}
		b.yes = t.follow(b.yes, learn(t.facts[i], b, true))
		b.no = t.follow(b.no, learn(t.facts[i], b, false))
		t.facts[i] = nil
	}
	return t.compact()
}

// follow goes to the next block whose answer is not known, and passes the facts to it.
func (t *threader) follow(to int, facts []fact) int {
	for to >= 0 {
		answer, known := decide(facts, t.blocks[to])
		switch {
		case !known:
			t.reach(to, facts)
			return to
		case answer:
			to = t.blocks[to].yes
		default:
			to = t.blocks[to].no
		}
	}
	return to
}

// reach notes that a path with these facts leads to a block. A fact holds there only if it holds on
// all paths to the block.
func (t *threader) reach(to int, facts []fact) {
	switch {
	case to < 0:
	case !t.reached[to]:
		t.reached[to], t.facts[to] = true, facts
	default:
		t.facts[to] = common(t.facts[to], facts)
	}
}

// common returns the facts that are in both. It changes neither.
func common(a, b []fact) []fact {
	if len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) {
		return a
	}
	var both []fact
	for _, f := range a {
		if slices.Contains(b, f) {
			both = append(both, f)
		}
	}
	return both
}

// learn adds the fact that an answer of a block implies.
func learn(facts []fact, b *block, answer bool) []fact {
	if b.id == 0 || len(facts) == maxFacts {
		return facts
	}
	return append(facts[:len(facts):len(facts)], fact{b.id, b.how, b.value, answer})
}

// decide derives the answer of a block from facts, or from the block alone if it compares two numbers.
func decide(facts []fact, b block) (answer, known bool) {
	switch {
	case len(b.code) == 1 && b.code[0].op == opLdImm && !b.withX:
		return b.holds(b.code[0].k, 0), true
	case b.id == 0:
		return false, false
	}
	for _, f := range facts {
		switch {
		case f.id != b.id || f.how != b.how:
		case f.value == b.value:
			return f.holds, true
		case f.how == equal && f.holds:
			return false, true
		}
	}
	return false, false
}

// compact removes the blocks that no path reaches.
func (t *threader) compact() program {
	place := make([]int, len(t.blocks))
	var kept []block
	for i, b := range t.blocks {
		place[i] = len(kept)
		if t.reached[i] {
			kept = append(kept, b)
		}
	}
	move := func(to int) int {
		if to < 0 {
			return to
		}
		return place[to]
	}
	for i, b := range kept {
		kept[i].yes, kept[i].no = move(b.yes), move(b.no)
	}
	return program{kept, move(t.entry)}
}
