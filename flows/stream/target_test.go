package stream

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
)

// TestTarget: a sender goes at once to the leader that a member names, if it knows the address, and
// otherwise to the members in turn.
func TestTarget(t *testing.T) {
	refusal := func(leader string) error {
		return fmt.Errorf("connect queue pairs with 10.0.0.1:7471: read the answer: the peer refused: not_leader epoch=7%s: %w", leader, protocol.NotLeader)
	}
	for _, c := range []struct {
		name  string
		cause error
		at    string
		now   bool
	}{
		{"the leader", refusal(" leader=c:1"), "c:1", true},
		{"no leader", refusal(""), "b:1", true},
		{"an address that the sender does not know", refusal(" leader=evil:1"), "b:1", true},
		{"the member itself", refusal(" leader=a:1"), "b:1", true},
		{"a broken connection", errors.New("connection reset"), "b:1", false},
	} {
		to := newTarget(&SenderConfig{Address: "a:1", Others: []string{"b:1", "c:1"}})
		if now := to.failed(c.cause, false, time.Now()); now != c.now || to.address() != c.at {
			t.Errorf("%s: it dials %s, at once %v; want %s, %v", c.name, to.address(), now, c.at, c.now)
		}
	}
	to := newTarget(&SenderConfig{Address: "a:1", Others: []string{"b:1"}})
	at := []bool{}
	for range 4 {
		at = append(at, to.failed(refusal(""), false, time.Now()))
	}
	if fmt.Sprint(at) != "[true true false false]" {
		t.Errorf("members that name no leader are dialed at once: %v", at)
	}
	if one := newTarget(&SenderConfig{Address: "a:1"}); one.failed(refusal(" leader=b:1"), false, time.Now()) || one.address() != "a:1" {
		t.Error("a sender with one address leaves it")
	}
}

// TestOther: a member that lacks what was acknowledged may be an earlier leader. The session is given up
// only if that lasts.
func TestOther(t *testing.T) {
	to := newTarget(&SenderConfig{Address: "a:1", Others: []string{"b:1"}})
	now := time.Now()
	if !to.other(now) || !to.other(now.Add(forgetful-1)) || to.other(now.Add(forgetful)) {
		t.Error("the time is not kept")
	}
	to.failed(errOther, true, now)
	if !to.other(now.Add(2 * forgetful)) {
		t.Error("progress does not begin the time again")
	}
	if one := newTarget(&SenderConfig{Address: "a:1"}); one.other(now) {
		t.Error("there is no other receiver")
	}
}

// TestSilentMember: a sender leaves a member that is silent, and for a while does not go back when others say
// that it leads. It waits longer each time, until messages are acknowledged.
func TestSilentMember(t *testing.T) {
	to := newTarget(&SenderConfig{Address: "a:1", Others: []string{"b:1", "c:1"}})
	leads := fmt.Errorf("the peer refused: not_leader epoch=7 leader=a:1: %w", protocol.NotLeader)
	now := time.Now()
	for i, c := range []struct {
		cause   error
		moved   bool
		after   time.Duration
		at      string
		once    bool
		timeout time.Duration
	}{
		{errSilent, true, 0, "b:1", false, 2 * leastTimeout},
		{leads, false, time.Millisecond, "c:1", false, 2 * leastTimeout},
		{leads, false, leastTimeout - 1, "b:1", false, 2 * leastTimeout},
		{leads, false, leastTimeout, "a:1", true, 2 * leastTimeout},
		{errSilent, false, leastTimeout, "b:1", false, 4 * leastTimeout},
		{leads, false, 3 * leastTimeout, "a:1", true, 4 * leastTimeout},
		{errSilent, false, 3 * leastTimeout, "b:1", false, maxTimeout},
		{errSilent, false, 3 * leastTimeout, "c:1", false, maxTimeout},
		{errSilent, true, 12 * leastTimeout, "a:1", false, 2 * leastTimeout},
	} {
		if once := to.failed(c.cause, c.moved, now.Add(c.after)); once != c.once || to.address() != c.at || to.timeout != c.timeout {
			t.Errorf("step %d: it dials %s, at once %v, with a timeout of %v; want %s, %v, %v", i+1, to.address(), once, to.timeout, c.at, c.once, c.timeout)
		}
	}
}
