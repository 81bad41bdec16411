package network

import (
	"testing"
	"time"
)

// TestChore: a refresh runs once for a group of changes, after they have settled, and then pauses
// in proportion to the time that it took.
func TestChore(t *testing.T) {
	var c pendingRefresh
	done := 0
	f := func() { done++; time.Sleep(10 * time.Millisecond) }
	c.do(f)
	if done != 0 || c.wanted() {
		t.Fatal("done although nobody wants it")
	}
	begun := time.Now()
	c.want()
	c.want()
	c.do(f)
	if since := time.Since(begun); done != 0 && since < settle {
		t.Errorf("done after %v", since)
	}
	far := begun.Add(time.Hour)
	for done == 0 {
		time.Sleep(time.Until(c.by(far)))
		c.do(f)
	}
	if c.wanted() || c.by(far) != far {
		t.Error("wanted when it is done")
	}
	c.want()
	if rest := time.Until(c.by(far)); rest < 50*time.Millisecond || rest > 5*time.Second {
		t.Errorf("it rests for %v after it took 10 ms", rest)
	}
	c.do(f)
	if done != 1 {
		t.Errorf("done %d times", done)
	}
	// A refresh requested while one runs waits for the pause.
	c.due = time.Now()
	c.do(func() { c.want(); time.Sleep(10 * time.Millisecond) })
	if rest := time.Until(c.by(far)); rest < 50*time.Millisecond {
		t.Errorf("it rests for %v", rest)
	}
}
