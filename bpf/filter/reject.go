package filter

// rejectsAll reports whether it is proven that the program accepts no packet: every path to
// acceptance contradicts itself. A program with too many paths counts as one that accepts some.
func (p program) rejectsAll() bool {
	s := search{program: p, values: newValues(maxVisits)}
	return !s.mayAccept()
}

// maxVisits bounds how many blocks and quantities a search visits. For most expressions the first path
// already accepts.
const maxVisits = 1 << 20

// search looks for a path to acceptance that does not contradict itself. It tries one path after the other,
// and undoes the facts of one before the next.
type search struct {
	program
	*values
	stack []visit
}

// visit is a block on the current path.
type visit struct {
	at       int
	before   int      // the facts known before the block, as a length of the trail
	after    int      // and once its code has run
	a, x     quantity // the compared quantities
	branches []bool
}

// mayAccept reports whether such a path exists, or may exist.
func (s *search) mayAccept() bool {
	if s.entry < 0 {
		return s.entry == accept
	}
	s.push(s.entry)
	for len(s.stack) > 0 {
		v := &s.stack[len(s.stack)-1]
		s.undo(v.after)
		if len(v.branches) == 0 {
			s.undo(v.before)
			s.stack = s.stack[:len(s.stack)-1]
			continue
		}
		answer, b := v.branches[0], &s.blocks[v.at]
		v.branches = v.branches[1:]
		to := b.no
		if answer {
			to = b.yes
		}
		if to == reject || !s.assume(b.leaf, v.a, v.x, answer) {
			continue
		}
		switch s.left--; {
		case s.left < 0, to == accept && s.consistent():
			return true
		case to != accept:
			s.push(to)
		}
	}
	return false
}

// Orders in which the search tries the results of a test.
var (
	yesFirst = []bool{true, false}
	noFirst  = []bool{false, true}
)

// push continues with a block.
func (s *search) push(at int) {
	v := visit{at: at, before: len(s.trail), branches: yesFirst}
	v.a, v.x = s.run(s.blocks[at].code)
	v.after = len(s.trail)
	if s.blocks[at].no == accept {
		v.branches = noFirst
	}
	s.stack = append(s.stack, v)
}

// assume adds the facts that an answer of a test implies, and reports whether they are consistent.
func (s *search) assume(l *leaf, a, x quantity, answer bool) bool {
	if !l.withX {
		return s.compare(l.how, a, l.value, answer)
	}
	if n, ok := s.number(x); ok {
		return s.compare(l.how, a, n, answer)
	}
	return s.compareTerms(l.how, a, x, answer)
}

// compare adds the fact how a quantity compares with a number.
func (s *search) compare(how compare, a quantity, n uint32, answer bool) bool {
	r := whole
	switch {
	case how == equal && answer:
		r = between{n, n}
	case how == equal:
		return s.exclude(a, n)
	case how == above && answer && n == whole.high, how == atLeast && !answer && n == 0:
		return false
	case how == above && answer:
		r.low = n + 1
	case how == above:
		r.high = n
	case answer:
		r.low = n
	default:
		r.high = n - 1
	}
	return s.within(a, r)
}

// compareTerms is compare with another quantity, of which only the range is known. The same question has the
// same answer.
func (s *search) compareTerms(how compare, a, x quantity, answer bool) bool {
	if a == x {
		return answer == (how != above)
	}
	one, other := s.rangeOf(a), s.rangeOf(x)
	switch {
	case how == equal && (one.high < other.low || one.low > other.high), how == above && one.high <= other.low, how == atLeast && one.high < other.low:
		return !answer
	case how == above && one.low > other.high, how == atLeast && one.low >= other.high:
		return answer
	}
	truth := uint32(0)
	if answer {
		truth = 1
	}
	return s.within(s.of(definition{kind: asked, k: uint32(how), a: a, b: x}), between{truth, truth})
}
