package perftest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect/internal/timed"
)

// Role is the role of our side.
type Role int

const (
	Client Role = iota // dials, and sends the first message of a test
	Server
)

// Config describes the test. Both sides must be started with the same.
type Config struct {
	Test Test
	Role Role
	MTU  rdma.MTU // the largest that our port supports
	// Both selects a bandwidth test in both directions at once.
	Both bool
	// Manager is option -R: the connection given to Begin is itself a queue pair, on which each
	// Write is a SEND, and the queue pairs are connected in Meet.
	Manager bool
}

// Session is a conversation with a perftest program. One goroutine at a time may use it.
type Session struct {
	conn   net.Conn
	config Config
	agreed Agreed
	keys   []Key
}

// Begin agrees on versions and sizes over a connection. The caller closes the connection, and
// cannot use it for anything else after an error.
func Begin(ctx context.Context, conn net.Conn, c Config) (*Session, error) {
	s := &Session{conn: conn, config: c}
	return s, s.step(ctx, "agree on versions and sizes", s.begin)
}

func (s *Session) begin() error {
	b, err := s.exchange(encodeVersion())
	if err != nil {
		return err
	}
	if s.agreed.PeerVersion, err = decodeVersion(b); err != nil {
		return err
	}
	if s.agreed.CycleBuffer, err = s.size("cycle buffer", cycleBuffer, maxCycle); err != nil {
		return err
	}
	if s.agreed.CacheLine, err = s.size("cache line", cacheLine, maxLine); err != nil {
		return err
	}
	if b, err = s.exchange(encodeMTU(s.config.MTU)); err != nil {
		return err
	}
	s.agreed.MTU, err = smaller(s.config.MTU, b)
	return err
}

func (s *Session) size(what string, ours, most uint32) (uint32, error) {
	b, err := s.exchange(binary.BigEndian.AppendUint32(nil, ours))
	if err != nil {
		return 0, err
	}
	return larger(what, ours, most, b)
}

// Agreed returns the result of Begin.
func (s *Session) Agreed() Agreed { return s.agreed }

// Meet makes both sides of option -R connect their queue pairs. The server waits for the client, so
// it must listen before.
func (s *Session) Meet(ctx context.Context, connect func() error) error {
	turn := func(name string) error {
		return s.step(ctx, name, func() error {
			_, err := s.turn(Key{})
			return err
		})
	}
	if err := turn("wait until both are about to connect"); err != nil {
		return err
	}
	if err := connect(); err != nil {
		return err
	}
	return turn("wait until both have connected")
}

// Reach returns how many bytes from Key.Addr on a peer reads or writes in a test with messages of
// size bytes.
func (s *Session) Reach(size uint64) uint64 { return max(size, uint64(s.agreed.CycleBuffer)) }

// Exchange exchanges keys, one for each queue pair; both sides must have the same number. It calls
// lead to connect our queue pairs when the peer's keys are known. The queue pairs must be in INIT
// before. The programs' servers of a bandwidth test in one direction go only to RTR; RTS works as
// well.
func (s *Session) Exchange(ctx context.Context, keys []Key, lead func(remote []Key) error) ([]Key, error) {
	if len(keys) == 0 {
		return nil, errors.New("perftest: there is no queue pair")
	}
	s.keys = keys
	order := sequences[s.config.Test]
	var remote []Key
	err := s.step(ctx, "exchange keys", func() (err error) {
		if err := s.turnIf(order.before); err != nil {
			return err
		}
		if remote, err = s.all(); err != nil {
			return err
		}
		return sameFamily(keys[0], remote[0])
	})
	if err == nil {
		err = lead(remote)
	}
	if err != nil {
		return nil, err
	}
	return remote, s.step(ctx, "exchange keys of queue pairs that are connected", func() error {
		err := s.turnIf(order.between)
		if err == nil {
			_, err = s.all()
		}
		if err != nil {
			return err
		}
		return s.turnIf(order.after)
	})
}

// Start waits until both sides are ready for messages. If the peer sends, the caller must post
// receives before. For tests in which one side does nothing there is no such step, and Start
// returns at once.
func (s *Session) Start(ctx context.Context) error {
	return s.step(ctx, "wait until both are ready", func() error {
		return s.turnIf(sequences[s.config.Test].start || s.config.Both)
	})
}

// Sync is one turn. With option -a, for all sizes, the programs take it between the sizes:
// ib_send_lat before each, ib_send_bw before and after each.
func (s *Session) Sync(ctx context.Context) error {
	return s.step(ctx, "wait for the peer", func() error { return s.turnIf(true) })
}

// Finish ends a test when its messages are complete. A server that takes no part in them waits here
// until the client has finished, so the context should allow for that. The report returned is the
// peer's, for tests that have one.
func (s *Session) Finish(ctx context.Context, mine Report) (peer Report, err error) {
	order := sequences[s.config.Test]
	err = s.step(ctx, "finish", func() error {
		if err := s.turnIf(order.report && !s.config.Both); err != nil {
			return err
		}
		if order.report || s.config.Both {
			if peer, err = s.reports(mine); err != nil {
				return err
			}
		}
		if !order.done {
			return nil
		}
		return s.done()
	})
	return peer, err
}

// byeTime is how long to wait for the peer's last message. Nothing depends on it.
const byeTime = time.Second

var bye = []byte("done\x00")

// done is the last turn. Both sides write, and close without looking at the other's message. done
// reads it, so that closing does not reset the connection under the peer.
func (s *Session) done() error {
	if err := s.turnIf(true); err != nil || s.config.Manager {
		return err
	}
	if _, err := s.conn.Write(bye); err != nil {
		return err
	}
	if err := s.conn.SetReadDeadline(time.Now().Add(byeTime)); err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, s.conn, int64(len(bye)))
	return nil
}

// turnIf takes a turn if it is wanted.
func (s *Session) turnIf(wanted bool) error {
	if !wanted {
		return nil
	}
	_, err := s.turn(s.keys[0])
	return err
}

// turn sends one key and receives one.
func (s *Session) turn(k Key) (Key, error) {
	if s.config.Manager {
		b, err := s.exchange(k.Binary())
		return KeyOfBinary(b), err
	}
	b, err := s.exchange(k.Encode())
	if err != nil {
		return Key{}, err
	}
	return DecodeKey(b)
}

// all exchanges all keys.
func (s *Session) all() ([]Key, error) {
	remote := make([]Key, len(s.keys))
	for i, k := range s.keys {
		var err error
		if remote[i], err = s.turn(k); err != nil {
			return nil, err
		}
	}
	return remote, nil
}

// exchange writes mine and reads the same number of bytes, in the order of our role. It writes with
// one call: the programs do not accept a message in parts.
func (s *Session) exchange(mine []byte) ([]byte, error) {
	theirs := make([]byte, len(mine))
	if s.config.Role == Server {
		if _, err := io.ReadFull(s.conn, theirs); err != nil {
			return nil, err
		}
	}
	if _, err := s.conn.Write(mine); err != nil {
		return nil, err
	}
	if s.config.Role == Client {
		if _, err := io.ReadFull(s.conn, theirs); err != nil {
			return nil, err
		}
	}
	return theirs, nil
}

// step runs one step within the context's time, and names the step in an error.
func (s *Session) step(ctx context.Context, name string, do func() error) error {
	release := timed.Bind(ctx, s.conn)
	err := do()
	if !release() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%v: %s: %w", s.config.Test, name, timed.Cause(ctx, err))
	}
	return nil
}
