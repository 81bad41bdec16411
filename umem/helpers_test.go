package umem

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// openOrdinary opens a region on ordinary pages, which every machine has. The end of the test closes it.
func openOrdinary(t testing.TB, c Config) *Region {
	t.Helper()
	c.Pages = Ordinary
	return open(t, c)
}

func open(t testing.TB, c Config) *Region {
	t.Helper()
	r, err := Open(c)
	testenv.Must(t, err)
	t.Cleanup(func() {
		testenv.Check(t, r.Close())
	})
	return r
}

func newHolder(t testing.TB, b *Book, o Owner) *Holder {
	t.Helper()
	h, err := b.NewHolder(o, b.name+" "+o.String())
	testenv.Must(t, err)
	return h
}

// take takes n frames and fails the test if there are fewer.
func take(t testing.TB, h *Holder, n int) []Frame {
	t.Helper()
	fs := make([]Frame, n)
	if got := h.Take(fs); got != n {
		t.Fatalf("took %d frames, want %d", got, n)
	}
	return fs
}

// audit fails the test if the records disagree, and returns the counts.
func audit(t testing.TB, r *Region) Count {
	t.Helper()
	c, err := r.Audit()
	testenv.Must(t, err)
	return c
}

// wantError checks that there is an error and its text contains every part.
func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not have %q", err, part)
		}
	}
}
