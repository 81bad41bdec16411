package attach

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// Config configures a Hub.
type Config struct {
	Socket   string // absolute path
	Programs []ProgramConfig
	Channels []ChannelConfig
	States   []StateConfig
	Region   *umem.Region // has a slice for each program
	Log      *slog.Logger
}

// ProgramConfig is a program that may attach.
type ProgramConfig struct {
	Name string // of its slice
	User string // name or number of the only user that may use the name
}

// Hub accepts programs. Any goroutine may call its methods.
type Hub struct {
	config   Config
	log      *slog.Logger
	boot     uint64
	programs map[string]*Program
	channels map[string]*Channel
	listener *net.UnixListener
	cancel   context.CancelFunc
	serving  sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	refused  map[wire.Reason]uint64
	sessions map[*session]bool
	taken    map[uint32]int // connections by user; those without a program count as one, see stranger
}

// Program is a program that may attach.
type Program struct {
	name  string
	uid   uint32
	slice *umem.Slice
	log   *slog.Logger // see paced

	mu      sync.Mutex // guards the fields below
	session *session   // nil: it is not attached
	ends    []*End
	ports   map[uint32]*End         // of the session
	takers  map[string]*Taker       // of connections, by flow
	places  map[string][]umem.Frame // that it fills, by the flow that had them last
	count   ProgramStats
}

// ProgramStats describes a program.
type ProgramStats struct {
	Name     string
	Attached bool
	PID      int32  // of the attached process
	Attaches uint64 // so far
	In, Out  uint64 // bytes of its memory
	// Ended counts ends of its connection and of its ports, and refusals, by reason.
	Ended map[wire.Reason]uint64
}

// Open makes a hub, which does not listen yet.
func Open(c Config) (*Hub, error) {
	h := &Hub{
		config: c, log: paced(c.Log), programs: map[string]*Program{}, channels: map[string]*Channel{}, refused: map[wire.Reason]uint64{},
		sessions: map[*session]bool{}, taken: map[uint32]int{},
	}
	for _, one := range c.Programs {
		uid, err := userID(one.User)
		if err != nil {
			return nil, fmt.Errorf("attach program %s: %w", one.Name, err)
		}
		slice := c.Region.Slice(one.Name)
		if slice == nil {
			return nil, fmt.Errorf("attach program %s: the region has no slice of that name", one.Name)
		}
		h.programs[one.Name] = &Program{name: one.Name, uid: uid, slice: slice, log: paced(c.Log), ports: map[uint32]*End{}, takers: map[string]*Taker{}, places: map[string][]umem.Frame{}, count: ProgramStats{Ended: map[wire.Reason]uint64{}}}
	}
	for _, one := range c.Channels {
		channel, err := newChannel(one, c.Region)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("channel %s: %w", one.Name, err), h.closeChannels())
		}
		h.channels[one.Name] = channel
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("draw the number of this run: %w", err)
	}
	h.boot = binary.NativeEndian.Uint64(b[:])
	return h, nil
}

// userID finds the number of a user.
func userID(name string) (uint32, error) {
	u, err := user.Lookup(name)
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
		if n, nerr := strconv.ParseUint(name, 10, 32); nerr == nil {
			return uint32(n), nil
		}
	}
	if err != nil {
		return 0, fmt.Errorf("find user %s: %w", name, err)
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err
}

// Listen begins to accept programs. The socket's directory must exist.
func (h *Hub) Listen() error {
	if err := removeStale(h.config.Socket); err != nil {
		return err
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: h.config.Socket, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("listen for programs: %w", err)
	}
	if err := os.Chmod(h.config.Socket, socketMode); err != nil {
		return errors.Join(err, l.Close())
	}
	h.listener = l
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	h.serving.Go(func() { h.accept(ctx) })
	h.serving.Go(func() { h.watchReaders(ctx) })
	return nil
}

// slowEvery is how often the hub looks for readers of channels that have lost messages and must not.
const slowEvery = 10 * time.Millisecond

// watchReaders closes the ports of readers that are too slow, until the hub closes.
func (h *Hub) watchReaders(ctx context.Context) {
	strict := slices.ContainsFunc(h.config.Channels, func(c ChannelConfig) bool {
		return slices.ContainsFunc(c.Readers, func(r ReaderConfig) bool { return r.Strict })
	})
	for strict {
		select {
		case <-time.After(slowEvery):
		case <-ctx.Done():
			return
		}
		for _, c := range h.channels {
			for _, r := range c.slow() {
				r.close(&wire.Refusal{Reason: wire.TooSlow, Text: "channel " + c.config.Name + ": the writer has written over messages that were not read"})
			}
		}
	}
}

// socketMode lets every user connect: who may attach is decided by the user of the connected process.
const socketMode = 0o666

// removeStale removes the socket of a daemon that has ended. It refuses to remove one that is in use.
func removeStale(path string) error {
	c, err := net.Dial("unixpacket", path)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("listen for programs: another daemon listens at %s (choose another attach.socket)", path), c.Close())
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	}
	return nil
}

// accept accepts programs until the hub closes.
func (h *Hub) accept(ctx context.Context) {
	for {
		c, err := h.listener.AcceptUnix()
		if err != nil && (ctx.Err() != nil || errors.Is(err, net.ErrClosed)) {
			return
		}
		if err != nil { // descriptors or memory are short: programs wait, and try again
			h.log.Error("no program can attach now", "err", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		s := newSession(h, c)
		if why := h.admit(s); why != nil {
			h.countRefused(why.Reason)
			h.log.Warn("a program was refused", "user", s.uid, "reason", why.Reason.String(), "err", why.Text)
			s.refuse(why)
			_ = c.Close()
			continue
		}
		h.serving.Go(func() {
			defer h.leave(s)
			s.serve(ctx)
		})
	}
}

const (
	// acceptPause is how long accept waits after an error.
	acceptPause = time.Second
	// spare is how many connections a user may have besides one for each of its programs: they begin or end. Users without
	// a program have as many in all, because any number of users may connect.
	spare = 32
	// stranger stands for the users without a program. No process has this number.
	stranger = ^uint32(0)
)

// admit gives a connection one of its user's places, so that nobody takes those of other users.
func (h *Hub) admit(s *session) *wire.Refusal {
	s.uid = userOf(s.conn)
	most, place := spare, stranger
	for _, p := range h.programs {
		if p.uid == s.uid {
			most, place = most+1, s.uid
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.taken[place]; n >= most {
		if place == stranger {
			return &wire.Refusal{Reason: wire.OverQuota, Text: fmt.Sprintf("%d connections of users without a program are open; at most %d are possible", n, most)}
		}
		return &wire.Refusal{Reason: wire.OverQuota, Text: fmt.Sprintf("user %d has %d connections; at most %d are possible", s.uid, n, most)}
	}
	h.taken[place]++
	h.sessions[s] = true
	s.place = place
	return nil
}

// leave ends admit.
func (h *Hub) leave(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s)
	if h.taken[s.place]--; h.taken[s.place] == 0 {
		delete(h.taken, s.place)
	}
}

// Close ends all programs' connections. The flows' ends must be closed before.
func (h *Hub) Close() error {
	if h.listener == nil {
		return h.closeChannels()
	}
	h.cancel()
	err := h.listener.Close() // removes the socket
	h.mu.Lock()
	for s := range h.sessions {
		s.end(&wire.Refusal{Reason: wire.Closing, Text: "the daemon ends"})
	}
	h.mu.Unlock()
	h.serving.Wait()
	h.listener = nil
	return errors.Join(err, h.closeChannels())
}

func (h *Hub) closeChannels() error {
	var errs []error
	for _, c := range h.channels {
		errs = append(errs, c.close())
	}
	clear(h.channels)
	return errors.Join(errs...)
}

// Channels describes the channels, in the order of the configuration.
func (h *Hub) Channels() (all []ChannelStats) {
	for _, one := range h.config.Channels {
		all = append(all, h.channels[one.Name].Stats())
	}
	return all
}

// countRefused counts a connection that was refused before its name was known to be good.
func (h *Hub) countRefused(why wire.Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused[why]++
}

// Stats describes all programs, in the order of the configuration, and counts refusals of connections by reason.
func (h *Hub) Stats() (all []ProgramStats, refused map[wire.Reason]uint64) {
	for _, one := range h.config.Programs {
		all = append(all, h.programs[one.Name].stats())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	refused = make(map[wire.Reason]uint64, len(h.refused))
	for why, n := range h.refused {
		refused[why] = n
	}
	return all, refused
}
