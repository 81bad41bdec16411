package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// In a verification messages go in rounds of as many as there is memory for. Between rounds
// the sides talk beside the queue pair, so that nothing is written over before it was compared.

// rounds calls f for each round, with the number of its first message and how many it has.
func (l *link) rounds(f func(first uint64, n int) error) error {
	for first := 0; first < l.Count; first += l.slots {
		if err := f(uint64(first), min(l.slots, l.Count-first)); err != nil {
			return err
		}
	}
	return nil
}

// verify is the client's side.
func (l *link) verify() (result, error) {
	round := l.verifySent
	switch {
	case l.op == rdma.Read:
		round = l.verifyRead
	case isAtomic(l.op):
		round = l.verifyAtomic
	}
	if err := l.rounds(round); err != nil {
		return result{}, err
	}
	return result{job: l.job, verified: l.Count}, nil
}

// verifySent sends a round and has the server compare it.
func (l *link) verifySent(first uint64, n int) error {
	for slot := range n {
		harness.Fill(l.bytes(l.out, slot), l.Seed, first+uint64(slot))
	}
	if err := l.run(first, n); err != nil {
		return err
	}
	if err := l.tell("compare"); err != nil {
		return err
	}
	return l.hear("same")
}

// verifyRead reads a round that the server has filled.
func (l *link) verifyRead(first uint64, n int) error {
	if err := l.hear("filled"); err != nil {
		return err
	}
	if err := l.run(first, n); err != nil {
		return err
	}
	for slot := range n {
		if err := l.compare(l.out, slot, first+uint64(slot)); err != nil {
			return err
		}
	}
	return l.tell("same")
}

// run posts the requests of a round, each of a slot of its own, and waits for all.
func (l *link) run(first uint64, n int) error {
	for slot := range n {
		r, s := l.request(first+uint64(slot), slot)
		r.Flags |= rdma.Signaled
		l.sends[slot], l.sges[slot] = r, s
	}
	if done, err := l.qp.PostSend(l.sends[:n], l.sges[:n]); done < n {
		return fmt.Errorf("post request %d: %w", first+uint64(done), err)
	}
	for done := 0; done < n; {
		cs, err := l.await(l.sent)
		if err != nil {
			return err
		}
		done += len(cs)
	}
	return nil
}

func (l *link) compare(area uint64, slot int, number uint64) error {
	if at := harness.Differs(l.bytes(area, slot), l.Seed, number); at >= 0 {
		return fmt.Errorf("message %d differs from byte %d on", number, at)
	}
	return nil
}

// The operands of atomics. fetch-and-add adds addend. compare-and-swap compares with the present
// value, and in every third request with another one.
const addend = 0x100000001

// verifyAtomic changes one word of the server's, request after request, and holds what
// each returns to what it must have found.
func (l *link) verifyAtomic(first uint64, n int) error {
	word := l.bytes(l.out, 0)
	for i := first; i < first+uint64(n); i++ {
		before, after := l.wordAt(i), l.wordAt(i+1)
		r, s := l.request(i, 0)
		r.Flags |= rdma.Signaled
		r.Compare, r.Swap = addend, 0
		if l.op == rdma.CompareSwap {
			r.Compare, r.Swap = before, i+1
			if before == after {
				r.Compare = ^before
			}
		}
		if err := l.send(r, s); err != nil {
			return err
		}
		if _, err := l.await(l.sent); err != nil {
			return err
		}
		if got := binary.NativeEndian.Uint64(word); got != before {
			return fmt.Errorf("request %d found %#x, and %#x was to be there", i, got, before)
		}
	}
	return nil
}

// wordAt returns the word before request number n.
func (l *link) wordAt(n uint64) uint64 {
	switch {
	case l.op == rdma.FetchAdd:
		return n * addend
	case n == 0:
		return 0
	case (n-1)%3 == 2: // the request before was to fail
		return n - 1
	}
	return n
}

// answerVerify is the server's side.
func (l *link) answerVerify() error {
	round := l.answerSent
	switch {
	case l.op == rdma.Read:
		round = l.answerRead
	case isAtomic(l.op):
		round = func(uint64, int) error { return nil }
	}
	return l.rounds(round)
}

// checkWord holds the word that atomics changed to what it must be at the end.
func (l *link) checkWord() error {
	if got, want := binary.NativeEndian.Uint64(l.bytes(l.in, 0)), l.wordAt(uint64(l.Count)); got != want {
		return fmt.Errorf("the word is %#x at the end, not %#x", got, want)
	}
	return nil
}

// answerRead fills a round and waits until it was read.
func (l *link) answerRead(first uint64, n int) error {
	for slot := range n {
		harness.Fill(l.bytes(l.in, slot), l.Seed, first+uint64(slot))
	}
	if err := l.tell("filled"); err != nil {
		return err
	}
	return l.hear("same")
}

// answerSent takes a round and compares it. When the client says that it sent everything it
// may still be under way: only RC tells.
func (l *link) answerSent(first uint64, n int) error {
	if err := l.hear("compare"); err != nil {
		return err
	}
	var err error
	if twoSided(l.op) {
		err = l.takeRound(first, n)
	} else {
		err = l.compareRound(first, n)
	}
	if err != nil {
		return errors.Join(err, l.tell(err.Error()))
	}
	for slot := range n {
		clear(l.bytes(l.in, slot))
	}
	return l.tell("same")
}

// compareRound compares what was written without an immediate.
func (l *link) compareRound(first uint64, n int) (err error) {
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
		err = nil
		for slot := 0; slot < n && err == nil; slot++ {
			err = l.compare(l.in, slot, first+uint64(slot))
		}
		if err == nil || l.Transport == rdma.RC || time.Now().After(end) {
			return err
		}
	}
}

// takeRound takes the messages of a round, in order, and posts their receives again.
func (l *link) takeRound(first uint64, n int) error {
	for got := 0; got < n; {
		cs, err := l.await(l.came)
		if err != nil {
			return fmt.Errorf("message %d: %w", first+uint64(got), err)
		}
		for i := range cs {
			if err := l.checkMessage(&cs[i], first+uint64(got)); err != nil {
				return err
			}
			got++
		}
	}
	return l.post(l.next(n), n)
}

// next is the slot of the receive that is to be posted next, and goes on by n.
func (l *link) next(n int) int {
	slot := l.reposted
	l.reposted = (l.reposted + n) % l.slots
	return slot
}

// checkMessage holds a message to its number.
func (l *link) checkMessage(c *rdma.WorkCompletion, number uint64) error {
	want := rdma.Received
	if l.op == rdma.WriteImmediate {
		want = rdma.ReceivedWrite
	}
	if c.Kind != want || uint64(c.Length) != l.Size+l.front() {
		return fmt.Errorf("message %d came as %v of %d bytes", number, c.Kind, c.Length)
	}
	if l.op != rdma.Send {
		b := c.Immediate()
		if got := binary.BigEndian.Uint32(b[:]); c.Flags&rdma.HasImmediate == 0 || got != uint32(number) {
			return fmt.Errorf("message %d came with the immediate %d", number, got)
		}
	}
	slot := int(c.ID)
	if l.op == rdma.WriteImmediate { // where it was written, and not where a receive was posted
		slot = int(number % uint64(l.slots))
		return l.compare(l.in, slot, number)
	}
	return l.compare(l.in+l.front(), slot, number)
}

func (r *result) printVerified(out io.Writer) {
	fmt.Fprintf(out, "%s over %v: %d messages of %d bytes, every byte as it should be\n", r.job.Op, r.job.Transport, r.verified, r.job.Size)
	if r.refused != rdma.Success {
		means, _ := r.refused.Meaning()
		fmt.Fprintf(out, "one beyond what is allowed: refused, as it must be: %v (%s)\n", r.refused, means)
	}
}
