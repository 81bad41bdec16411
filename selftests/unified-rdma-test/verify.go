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

// A verification sends messages in rounds, as many at a time as there are slots. Between rounds the sides
// exchange messages beside the queue pair, so that no message is overwritten before it is compared.

// rounds calls f for each round, with the number of its first message and its number of messages.
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

// verifySent sends a round and makes the server compare it.
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

// verifyRead reads a round that the server has filled, and compares it.
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

// run posts the requests of a round, each with its own slot, and waits for all.
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
// value. In every third request it compares with a wrong one.
const addend = 0x100000001

// verifyAtomic changes one word of the server, request after request. It compares the value that
// each request returns with the expected one.
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

// wordAt returns the value of the word before request n.
func (l *link) wordAt(n uint64) uint64 {
	switch {
	case l.op == rdma.FetchAdd:
		return n * addend
	case n == 0:
		return 0
	case (n-1)%3 == 2: // the request before had to fail
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

// checkWord compares the final value of the word that atomics changed with the expected one.
func (l *link) checkWord() error {
	if got, want := binary.NativeEndian.Uint64(l.bytes(l.in, 0)), l.wordAt(uint64(l.Count)); got != want {
		return fmt.Errorf("the word is %#x at the end, not %#x", got, want)
	}
	return nil
}

// answerRead fills a round and waits until the client has read it.
func (l *link) answerRead(first uint64, n int) error {
	for slot := range n {
		harness.Fill(l.bytes(l.in, slot), l.Seed, first+uint64(slot))
	}
	if err := l.tell("filled"); err != nil {
		return err
	}
	return l.hear("same")
}

// answerSent receives a round and compares it. When the client reports that it has sent everything,
// messages may still be in flight: only RC confirms delivery.
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

// compareRound compares a round of WRITEs without an immediate.
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

// takeRound receives the messages of a round, in order, and reposts their receives.
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

// next returns the slot of the receive that is posted next, and advances it by n.
func (l *link) next(n int) int {
	slot := l.reposted
	l.reposted = (l.reposted + n) % l.slots
	return slot
}

// checkMessage compares a message with what its number requires.
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
	if l.op == rdma.WriteImmediate { // the slot of the WRITE, not that of the receive
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
