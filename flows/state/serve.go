package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Grant is the name of the grant of a state's memory to a reader. If the state has words, it is that of the head, and
// GrantWords that of the words.
const (
	Grant      = "state"
	GrantWords = "words"
)

// wordsAccess is what a peer may do with words. It may only READ everything else.
const wordsAccess = rdma.RemoteRead | rdma.RemoteAtomic

// ServerConfig configures a Server. All fields but Permit are needed.
type ServerConfig struct {
	State       *State
	Endpoint    *stream.Endpoint // of the state's region
	Listen      string           // host:port
	Clients     int              // readers at a time
	Permit      func(connect.Peer, protocol.Hello) error
	AllowAnyGID bool
	Connect     connect.Config
	Log         *slog.Logger
}

// Server lets peers READ the memory of a state. Its methods may be called from any goroutine.
type Server struct {
	config   ServerConfig
	domain   rdma.ProtectionDomain // of this state alone
	memory   rdma.MemoryRegion     // of this state alone, to be read by peers
	words    rdma.MemoryRegion     // the words, if it has any, which peers may change by atomic operations; or nil
	nothing  rdma.CompletionQueue  // nothing is ever posted
	listener *connect.Listener
	cancel   context.CancelFunc
	all      sync.WaitGroup
	err      atomic.Pointer[error] // why it accepts no more readers
	accepted atomic.Uint64
	refused  map[protocol.Reason]*atomic.Uint64

	mu      sync.Mutex
	readers int
}

// ServerStats describes a server.
type ServerStats struct {
	Listen     string
	Readers    int    // now
	Accepted   uint64 // so far
	Refused    map[protocol.Reason]uint64
	Handshakes map[connect.Reason]uint64 // failed ones
	Err        error                     // why it accepts no more readers
}

// Serve grants the memory and begins to accept readers. The caller closes the server.
func Serve(c ServerConfig) (*Server, error) {
	s := &Server{config: c, refused: map[protocol.Reason]*atomic.Uint64{}}
	for _, r := range protocol.Reasons() {
		s.refused[r] = new(atomic.Uint64)
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("serve state %s: %w", c.State.Name(), err), s.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.all.Go(func() { s.accept(ctx) })
	return s, nil
}

func (s *Server) open() (err error) {
	c := &s.config
	if s.domain, err = c.Endpoint.Device.NewProtectionDomain(); err != nil {
		return err
	}
	base, read := c.State.Part().Base(), c.State.Size()
	if c.State.config.Words > 0 {
		read = wire.StateHeadLen
		if s.words, err = s.domain.RegisterPart(c.Endpoint.Region, base+read, c.State.Size()-read, rdma.LocalWrite|wordsAccess); err != nil {
			return err
		}
	}
	if s.memory, err = s.domain.RegisterPart(c.Endpoint.Region, base, read, rdma.RemoteRead); err != nil {
		return err
	}
	if s.nothing, err = c.Endpoint.Device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 1}); err != nil {
		return err
	}
	s.listener, err = connect.Listen(context.Background(), c.Listen, c.Connect)
	return err
}

// Addr returns where it listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Stats describes the server.
func (s *Server) Stats() ServerStats {
	st := ServerStats{Listen: s.listener.Addr().String(), Accepted: s.accepted.Load(), Refused: map[protocol.Reason]uint64{}, Handshakes: s.listener.Failures()}
	for r, n := range s.refused {
		st.Refused[r] = n.Load()
	}
	if err := s.err.Load(); err != nil {
		st.Err = *err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Readers = s.readers
	return st
}

// Close ends all readers' connections, and the grant. After an error it may be called again.
func (s *Server) Close() error {
	if s.cancel != nil {
		s.cancel()
	}
	if s.listener != nil {
		if err := s.listener.Close(); err != nil {
			return err
		}
	}
	s.all.Wait()
	if s.nothing != nil {
		if err := s.nothing.Close(); err != nil {
			return err
		}
		s.nothing = nil
	}
	if s.memory != nil {
		if err := s.memory.Close(); err != nil {
			return err
		}
		s.memory = nil
	}
	if s.words != nil {
		if err := s.words.Close(); err != nil {
			return err
		}
		s.words = nil
	}
	if s.domain != nil {
		if err := s.domain.Close(); err != nil {
			return err
		}
		s.domain = nil
	}
	return nil
}

// accept accepts readers until the context ends.
func (s *Server) accept(ctx context.Context) {
	for {
		q, err := s.listener.Accept(ctx)
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			err = fmt.Errorf("accept readers of state %s: %w", s.config.State.Name(), err)
			s.config.Log.Error("no more peers can read a state", "state", s.config.State.Name(), "err", err)
			s.err.Store(&err)
			return
		}
		s.all.Go(func() { s.serve(ctx, q) })
	}
}

// serve serves one reader until it is gone.
func (s *Server) serve(ctx context.Context, q *connect.Request) {
	log := s.config.Log.With("state", s.config.State.Name(), "reader", q.Peer().String())
	err := s.admit(q)
	if err != nil {
		s.turnAway(q, err)
		log.Warn("reader refused", protocol.LogReason(err), "err", err)
		return
	}
	defer s.leave()
	pair, conn, err := s.connect(q)
	if err != nil {
		s.turnAway(q, err)
		log.Warn("reader did not connect", "err", err)
		return
	}
	s.accepted.Add(1)
	log.Info("reader connected")
	stop := context.AfterFunc(ctx, func() {
		_ = conn.Send([]byte(protocol.Closing.Error())) // it may be gone
		_ = conn.Close()                                // reported below
	})
	for {
		if _, err = conn.Receive(); err != nil {
			break
		}
	}
	stop()
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		err = nil
	}
	if err := errors.Join(err, pair.Close(), conn.Close()); err != nil {
		log.Warn("reader's connection ended", "err", err)
		return
	}
	log.Info("reader disconnected")
}

// turnAway refuses a request, unless it was answered already.
func (s *Server) turnAway(q *connect.Request, err error) {
	if why, is := errors.AsType[protocol.Reason](err); is {
		s.refused[why].Add(1)
	}
	_ = q.Refuse(err.Error()) // fails only if the request was answered already
}

// admit checks a reader, and counts it until leave.
func (s *Server) admit(q *connect.Request) error {
	c := &s.config
	h, err := protocol.ParseHello(q.Remote().Hello)
	switch {
	case err != nil:
		return err
	case h.Role != protocol.RoleState:
		return fmt.Errorf("%w: a state is read here, and the peer wants %v", protocol.BadKind, h.Role)
	case h.Flow != c.State.Name():
		return fmt.Errorf("%w: state %q is served here, not %q", protocol.NotPermitted, c.State.Name(), h.Flow)
	}
	if !c.AllowAnyGID {
		if err := c.Endpoint.CheckGID(q); err != nil {
			return err
		}
	}
	if c.Permit != nil {
		if err := c.Permit(q.Peer(), h); err != nil {
			return fmt.Errorf("%w: %w", protocol.NotPermitted, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers >= c.Clients {
		return fmt.Errorf("%w: state %s has %d readers, as many as clients allows", protocol.Busy, c.State.Name(), s.readers)
	}
	s.readers++
	return nil
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers--
}

// connect makes a queue pair over which the reader may READ the state's memory, and connects it.
func (s *Server) connect(q *connect.Request) (rdma.QueuePair, *connect.Conn, error) {
	e := s.config.Endpoint
	settings, err := e.Settings(q.Local(), q.Remote().Parameters.GID.Addr())
	if err != nil {
		return nil, nil, err
	}
	settings.Access = rdma.RemoteRead
	if s.words != nil {
		settings.Access = wordsAccess
	}
	pair, err := s.domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: s.nothing, ReceiveCQ: s.nothing, SendDepth: 1, RecvDepth: 1, SendSGEs: 1, RecvSGEs: 1})
	if err != nil {
		return nil, nil, err
	}
	end := connect.End{Queue: pair, Settings: settings}
	end.Grants = []connect.Grant{{Name: Grant, RKey: s.memory.RKey(), Addr: s.memory.Addr(), Length: s.memory.Length(), Access: rdma.RemoteRead}}
	if s.words != nil {
		end.Grants = append(end.Grants, connect.Grant{Name: GrantWords, RKey: s.words.RKey(), Addr: s.words.Addr(), Length: s.words.Length(), Access: wordsAccess})
	}
	hello := protocol.Hello{Role: protocol.RoleState, Flow: s.config.State.Name(), Size: s.config.State.Size()}
	if end.Hello, err = hello.Append(nil); err == nil {
		end.Parameters, err = connect.Prepare(e.Device, pair, settings)
	}
	if err != nil {
		return nil, nil, errors.Join(err, pair.Close())
	}
	conn, err := q.Accept(end)
	if err != nil {
		return nil, nil, errors.Join(err, pair.Close())
	}
	return pair, conn, nil
}
