package soak

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// A payload begins with its seed and number. The other bytes follow from these two.
const headLen = 16

func putMessage(b []byte, seed, n uint64) {
	binary.BigEndian.PutUint64(b, seed)
	binary.BigEndian.PutUint64(b[8:], n)
	harness.Fill(b[headLen:], seed, n)
}

// readMessage verifies every byte of a payload.
func readMessage(b []byte) (seed, n uint64, err error) {
	if len(b) < headLen {
		return 0, 0, fmt.Errorf("a message of %d bytes is none of ours", len(b))
	}
	seed, n = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	if at := harness.Differs(b[headLen:], seed, n); at >= 0 {
		return seed, n, fmt.Errorf("message %d of seed %d differs from byte %d on", n, seed, at+headLen)
	}
	return seed, n, nil
}

// goodbye is the time limit for the start and the end of a job. A job may have to reconnect in that time.
const goodbye = time.Minute

// append sends messages at the job's rate until the job is to end. Then it waits for the last
// acknowledgement.
func (w *work) append() error {
	opening, cancel := context.WithTimeout(w.ctx, goodbye)
	defer cancel()
	a, err := w.client.Append(opening, client.AppendConfig{Address: w.Address, Flow: w.Flow, Message: w.Size, Depth: w.Depth})
	if err != nil {
		return err
	}
	sent, err := w.send(a)
	if err == nil {
		ending, cancel := context.WithTimeout(context.Background(), goodbye)
		defer cancel()
		_, err = a.Wait(ending, sent)
	}
	w.look(a, sent)
	return errors.Join(err, a.Close())
}

func (w *work) send(a *client.Appender) (sent uint64, err error) {
	message := make([]byte, w.Size)
	for begin := time.Now(); w.pace(begin, sent); {
		putMessage(message, w.Seed, sent+1)
		if _, err := a.Send(w.ctx, message); errors.Is(err, context.Canceled) {
			break
		} else if err != nil {
			return sent, err
		}
		sent++
		w.look(a, sent)
	}
	return sent, nil
}

func (w *work) look(a *client.Appender, sent uint64) {
	s := a.Stats()
	w.note(func(t *tally) { t.Messages, t.Done, t.Broken = sent, s.Acknowledged, s.Failures })
}

// receive receives messages until the job is to end.
func (w *work) receive() error {
	s, err := w.client.Listen(w.ctx, client.SinkConfig{Listen: w.Address, Flow: w.Flow, Window: w.Depth, Senders: 4, Write: w.Write})
	if err != nil {
		return err
	}
	last := map[uint64]uint64{}
	for {
		m, err := s.Receive(w.ctx)
		if errors.Is(err, context.Canceled) {
			return s.Close()
		}
		if err == nil {
			err = w.came(last, m.Payload)
		}
		if err != nil {
			return errors.Join(err, s.Close())
		}
		if w.slow.Load() {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// came verifies a message, and compares its number with the last one of the same seed.
func (w *work) came(last map[uint64]uint64, payload []byte) error {
	seed, n, err := uint64(0), uint64(0), error(nil)
	if w.Packets {
		n, _ = testenv.Sequence(payload)
		if !testenv.Intact(payload) {
			err = fmt.Errorf("packet %d is damaged", n)
		}
	} else {
		seed, n, err = readMessage(payload)
	}
	if err != nil {
		return err
	}
	before := last[seed]
	last[seed] = max(before, n)
	w.note(func(t *tally) {
		t.Messages, t.Last = t.Messages+1, max(t.Last, n)
		switch {
		case n <= before:
			t.Repeated++
		default:
			t.Missing += n - before - 1
		}
	})
	if !w.Lossy && n > before+1 {
		return fmt.Errorf("message %d of seed %d came behind message %d", n, seed, before)
	}
	return nil
}

// blockSize is the unit of served blocks. Each block's content follows from its number.
const blockSize = 4096

// read requests random blocks at the job's rate, and reconnects when necessary.
func (w *work) read() error {
	random := rand.New(rand.NewPCG(w.Seed, 0))
	begin, asked := time.Now(), uint64(0)
	for w.ctx.Err() == nil {
		dialing, cancel := context.WithTimeout(w.ctx, goodbye)
		b, err := w.client.Blocks(dialing, client.BlocksConfig{Address: w.Address, Flow: w.Flow, Longest: w.Size, Depth: w.Depth})
		cancel()
		for err == nil && w.pace(begin, asked) {
			asked++
			err = w.fetch(b, random.Uint64N(b.Size()/uint64(w.Size))*uint64(w.Size))
			var wrong *wrongError
			if errors.As(err, &wrong) {
				return errors.Join(err, b.Close())
			}
			if w.refused(err) {
				err = nil
			}
		}
		if err != nil && w.ctx.Err() == nil {
			w.note(func(t *tally) { t.Broken++ })
			time.Sleep(100 * time.Millisecond)
		}
		if b != nil {
			if err := b.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// refused counts a request that the server could not serve. The job does not reconnect after it.
func (w *work) refused(err error) bool {
	if !errors.Is(err, protocol.DiskError) {
		return false
	}
	w.note(func(t *tally) { t.Refused++ })
	return true
}

// wrongError reports the offset of wrong bytes.
type wrongError struct{ at uint64 }

func (e *wrongError) Error() string {
	return fmt.Sprintf("the block at %d is not what it was made", e.at)
}

// fetch reads one block and verifies it.
func (w *work) fetch(b *client.Blocks, offset uint64) error {
	asked := false
	ask := func() (uint64, int, bool) {
		again := !asked
		asked = true
		return offset, w.Size, again
	}
	return b.Fetch(context.Background(), ask, func(offset uint64, bytes []byte) error {
		for at := uint64(0); at < uint64(len(bytes)); at += blockSize {
			if harness.Differs(bytes[at:at+blockSize], w.Seed, (offset+at)/blockSize) >= 0 {
				return &wrongError{offset + at}
			}
		}
		w.note(func(t *tally) { t.Messages++ })
		return nil
	})
}
