package group

import (
	"testing"

	"github.com/unifiedd/unifiedd/flows/group/election"
)

// logOf makes a log with records of these epochs, from position 1 on.
func logOf(epochs ...uint64) (l Log) {
	for i, e := range epochs {
		if !l.Append(Place{e, uint64(i + 1)}) {
			panic("epochs decrease")
		}
	}
	return l
}

// TestAgree: two logs agree up to the last position with the same epoch in both.
func TestAgree(t *testing.T) {
	epochs := func(n uint64) (l Log) {
		for i := range n {
			l.Append(Place{i + 1, i + 1})
		}
		return l
	}
	long := epochs(3 * maxSpans)
	known := long
	known.Committed = 20
	for _, c := range []struct {
		name string
		a, b Log
		want uint64
	}{
		{"both empty", Log{}, Log{}, 0},
		{"one empty", logOf(1, 1), Log{}, 0},
		{"equal", logOf(1, 1, 2), logOf(1, 1, 2), 3},
		{"one is longer", logOf(1, 1, 2, 2), logOf(1, 1, 2), 3},
		{"one has a later epoch", logOf(1, 1, 2, 3, 3), logOf(1, 1, 2), 3},
		{"both differ at the end", logOf(1, 1, 1, 3), logOf(1, 1, 2, 2), 2},
		{"nothing is the same", logOf(2, 2), logOf(3, 3), 0},
		{"more epochs than a table has", long, epochs(2*maxSpans + 1), 2*maxSpans + 1},
		{"no epoch is in both tables", long, epochs(maxSpans), 0},
		{"no epoch is in both tables, and 9 are committed in both", known, Log{End: Place{1, 20}, Table: Table{{1, 1}}, Committed: 9}, 9},
	} {
		if got := Agree(c.a, c.b); got != c.want {
			t.Errorf("%s: they agree up to %d, want %d", c.name, got, c.want)
		}
		if got := Agree(c.b, c.a); got != c.want {
			t.Errorf("%s, the other way round: they agree up to %d, want %d", c.name, got, c.want)
		}
	}
}

// TestTableCheck: a table from another member is refused if no log can have it.
func TestTableCheck(t *testing.T) {
	for _, c := range []struct {
		name  string
		table Table
		end   Place
		ok    bool
	}{
		{"an empty log", nil, Place{}, true},
		{"a usual one", Table{{1, 1}, {3, 7}}, Place{3, 9}, true},
		{"epochs go back", Table{{3, 1}, {1, 7}}, Place{1, 9}, false},
		{"positions go back", Table{{1, 7}, {3, 7}}, Place{3, 9}, false},
		{"the end is of another epoch", Table{{1, 1}}, Place{2, 9}, false},
		{"the end is before the last epoch", Table{{1, 10}}, Place{1, 9}, false},
		{"an end without a table", nil, Place{2, 9}, false},
		{"too many", make(Table, maxSpans+1), Place{}, false},
	} {
		if err := c.table.Check(c.end); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestCommits: what is committed with majorities, during a change of the voters, and with a witness.
func TestCommits(t *testing.T) {
	safe := func(c *Commits, at ...uint64) uint64 {
		for i, p := range at {
			c.Safe(uint32(i+1), p)
		}
		return c.Committed()
	}
	three := &Config{Members: election.Members{Voters: []uint32{1, 2, 3}}}
	if got := safe(NewCommits(5, 2, three), 9, 4, 4); got != 2 {
		t.Errorf("a majority has records of an earlier epoch only: %d are committed, want 2", got)
	}
	c := NewCommits(5, 2, three)
	if got := safe(c, 9, 7, 4); got != 7 || !c.Open() {
		t.Errorf("a majority has 7: %d are committed", got)
	}
	joint := &Config{Members: election.Members{Voters: []uint32{1, 4, 5}, Outgoing: []uint32{1, 2, 3}}}
	if got := c.Configure(joint); got != 7 || c.Held() != 0 {
		t.Errorf("new voters have nothing: %d are committed, and enough have %d", got, c.Held())
	}
	if got := c.Safe(4, 8); got != 7 || c.Held() != 7 {
		t.Errorf("a new voter has 8: %d are committed, and enough have %d", got, c.Held())
	}
	pair := &Config{Members: election.Members{Voters: []uint32{1, 2, 3}}, Witnesses: []uint32{3}}
	if got := safe(NewCommits(1, 0, pair), 9, 4, 9); got != 4 {
		t.Errorf("with a witness, both others must have a record: %d are committed, want 4", got)
	}
}

// TestCommitsAllocate: computing what is committed does not allocate.
func TestCommitsAllocate(t *testing.T) {
	c := NewCommits(1, 0, &Config{Members: election.Members{Voters: []uint32{1, 2, 3, 4, 5}, Outgoing: []uint32{1, 2, 3}}})
	at := uint64(0)
	for id := range uint32(5) {
		c.Safe(id+1, 1)
	}
	if n := testing.AllocsPerRun(1000, func() {
		at++
		c.Safe(uint32(at%5+1), at)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
