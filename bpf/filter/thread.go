package filter

import "slices"

// fact is what is known of the code with this id: how it compares with value.
type fact struct {
	id    int
	how   compare
	value uint32
	holds bool
}

// maxFacts is how many facts are kept on a way. What is known first stays: it is the
// type of the frame, which most tests ask for again.
const maxFacts = 12

// threader sends every way past the tests whose answer is known on it. A test that is
// left out has been made on the way with the same code, so that nothing is read that
// was not read before.
type threader struct {
	program
	facts   [][]fact // at the start of each block that is reached
	reached []bool
}

// shorten takes out what makes no difference, until there is nothing more. It leaves out
// a test whose answers lead to the same place, and with it what the test would have
// read, as libpcap does: for a packet that ends in front of that, it is part of what an
// expression means. With protochain libpcap leaves everything in, so neither is anything
// left out here.
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

// collapse leads ways past tests whose answer makes no difference.
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

// keeps reports whether a test leaves something behind that later ones may ask for.
func (l *leaf) keeps() bool {
	return l.id == 0 && slices.ContainsFunc(l.code, func(i instr) bool { return i.op == opKeep })
}

// thread shortens the ways through a program and takes out the blocks that no way
// leads to any more.
func thread(p program) program {
	t := &threader{program: p, facts: make([][]fact, len(p.blocks)), reached: make([]bool, len(p.blocks))}
	t.reach(p.entry, nil)
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

// follow goes to the next block whose answer is not known, and brings the facts there.
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

// reach notes that a way with these facts leads to a block: what holds there is what
// holds on all its ways.
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

// learn adds what an answer of a block says.
func learn(facts []fact, b *block, answer bool) []fact {
	if b.id == 0 || len(facts) == maxFacts {
		return facts
	}
	return append(facts[:len(facts):len(facts)], fact{b.id, b.how, b.value, answer})
}

// decide answers a block from facts.
func decide(facts []fact, b block) (answer, known bool) {
	if b.id == 0 {
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

// compact takes out the blocks that are not reached.
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
