package attach

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// ChannelConfig is a channel: messages of one program, its writer, that others read.
type ChannelConfig struct {
	Name    string
	Writer  string // name of the program that writes; empty: a flow does, see [Hub.Inlet]
	Readers []ReaderConfig
	Slots   uint32 // messages that the ring has
	Slot    uint32 // bytes of a slot: a multiple of 64
}

// RingSlice returns the name of the slice of the region that has the ring of a channel: its In part if a flow writes the
// ring, and its Out part if a program does and a flow reads it. A channel that no flow uses has no slice.
func RingSlice(channel string) string { return "channel " + channel }

// RingLen returns the length of a channel's ring in bytes.
func (c *ChannelConfig) RingLen() uint64 { return wire.ChannelLen(c.Slots, c.Slot) }

// ReaderConfig is a program that reads a channel, or a peer on another machine to which a flow passes it on.
type ReaderConfig struct {
	Program string // or the name of the peer
	Remote  bool   // it is a peer
	// Blocks says that the writer waits for this reader. Otherwise the reader loses the oldest messages.
	Blocks bool
	// Strict says that the daemon closes the port of this reader instead.
	Strict bool
}

// Channel has the memory of a channel. The daemon is not in its path: writer and readers map the memory. Any goroutine
// may call its methods.
//
// A ring belongs to one session of the writer. Once the writer has mapped it, the daemon seals it: nobody can map it to
// write any more, and the readers get it only then. The next writer has a new ring, whose sequences go on.
//
// The ring of a channel that a flow uses lies in the region instead, because devices have registered that. It stays the
// same as long as the daemon runs. If a program writes it, it cannot be sealed, because the next session must map it, too:
// it belongs to the user of the writer, and readers get it for reading only, with a mode that keeps every other user from
// opening it anew. If a flow writes it, it is sealed from the start.
type Channel struct {
	config ChannelConfig
	part   *umem.Part // of the region, with the ring; nil: each session of the writer has a new one

	mu        sync.Mutex // guards the fields below
	ring      *os.File   // of the writer that is there; nil: none is
	memory    []byte     // mapped to read
	view      *wire.Channel
	sealed    bool // readers may map the ring
	writing   bool // a writer is there
	writer    *session
	used      bool   // by a flow
	next      uint64 // sequence of the next writer's first message
	numbering uint64 // of the sequences: random
	present   *pageFile
	readers   []*channelReader
}

// channelReader is a configured reader.
type channelReader struct {
	config   ReaderConfig
	index    int
	page     *pageFile
	cursor   *wire.ReaderPage
	wakes    [2]*os.File // the reader's end, the writer's end
	wakeFD   int         // of the writer's end
	there    bool
	session  *session // nil: it is not there
	openings uint64   // how often it has opened the channel
}

// openReader is a reader that had the channel open at a moment. It may close it, and open it again, at any time after that.
type openReader struct {
	reader  *channelReader
	session *session
	opening uint64
}

// presentReaders returns the readers of programs that have the channel open and that want accepts. The caller holds the lock.
func (h *Channel) presentReaders(want func(*channelReader) bool) (all []openReader) {
	for _, r := range h.readers {
		if r.there && r.session != nil && want(r) {
			all = append(all, openReader{r, r.session, r.openings})
		}
	}
	return all
}

// pageFile is a page that the daemon shares.
type pageFile struct {
	file   *os.File // to be written by the one that it belongs to
	memory []byte
}

// newPage makes a page. Its size cannot change. alone says that nobody but the daemon writes it: the page is sealed.
func newPage(name string, alone bool) (*pageFile, error) {
	f, err := sharedFile(name, wire.PageLen)
	if err != nil {
		return nil, err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, wire.PageLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map a page of a channel: %w", err), f.Close())
	}
	p := &pageFile{f, b}
	if alone {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL); err != nil {
			return nil, errors.Join(fmt.Errorf("seal a page of a channel: %w", err), p.close())
		}
	}
	return p, nil
}

func (p *pageFile) close() error { return errors.Join(unix.Munmap(p.memory), p.file.Close()) }

// sharedFile makes a memfd whose size cannot change. A program gets some of them for reading only, and could open them
// anew to write, through /proc/self/fd, if their mode permitted it: memfd_create(2) makes it 0777.
func sharedFile(name string, size uint64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create shared memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, errors.Join(fmt.Errorf("size shared memory to %d bytes: %w", size, err), f.Close())
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		return nil, errors.Join(fmt.Errorf("seal shared memory: %w", err), f.Close())
	}
	if err := f.Chmod(0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("keep other users from opening shared memory: %w", err), f.Close())
	}
	return f, nil
}

// readOnly opens a memfd anew, for reading only.
func readOnly(f *os.File) (*os.File, error) {
	only, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open shared memory for reading only: %w", err)
	}
	return only, nil
}

// newChannel makes the pages of a channel. region may have its ring.
func newChannel(c ChannelConfig, region *umem.Region) (h *Channel, err error) {
	h = &Channel{config: c, next: 1}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return h, fmt.Errorf("draw the number of a channel's sequences: %w", err)
	}
	h.numbering = max(1, binary.NativeEndian.Uint64(b[:]))
	if h.present, err = newPage("unifiedd-present", true); err != nil {
		return h, err
	}
	if slice := region.Slice(RingSlice(c.Name)); slice != nil {
		if err := h.place(region, slice); err != nil {
			return h, err
		}
	}
	return h, h.addReaders(c.Readers)
}

// place lays out the ring in the region.
func (h *Channel) place(region *umem.Region, slice *umem.Slice) error {
	flags := uint32(wire.Sums)
	if h.part = slice.Out; h.config.Writer == "" {
		flags, h.part = wire.Sums|wire.Unordered, slice.In
	}
	if h.part == nil || h.part.Size() < h.config.RingLen() {
		return fmt.Errorf("the region has no room for the ring of %d bytes", h.config.RingLen())
	}
	h.ring, h.memory = h.part.File(), region.At(h.part.Base(), h.config.RingLen())
	h.view = wire.NewChannel(h.memory, h.config.Slots, h.config.Slot, flags)
	if h.config.Writer == "" {
		return nil // the peer tells the numbering
	}
	h.view.SetNumbering(h.numbering)
	if err := h.ring.Chmod(0o600); err != nil {
		return fmt.Errorf("keep other users from opening a channel's ring: %w", err)
	}
	return nil
}

// addReaders makes pages and sockets of readers.
func (h *Channel) addReaders(all []ReaderConfig) error {
	for _, one := range all {
		r := &channelReader{config: one, index: len(h.readers)}
		var err error
		if r.page, err = newPage("unifiedd-cursor", false); err != nil {
			return err
		}
		h.readers = append(h.readers, r)
		r.cursor = wire.NewReaderPage(r.page.memory)
		ends, err := wakeSockets()
		if err != nil {
			return fmt.Errorf("make the wake sockets of a channel: %w", err)
		}
		r.wakes = [2]*os.File{os.NewFile(uintptr(ends[0]), "unifiedd-wake"), os.NewFile(uintptr(ends[1]), "unifiedd-wake")}
		r.wakeFD = int(r.wakes[1].Fd())
	}
	return nil
}

// close gives back what a reader has.
func (r *channelReader) close() error {
	errs := []error{r.page.close()}
	for _, f := range r.wakes {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

func (h *Channel) close() error {
	var errs []error
	errs = append(errs, h.dropRing())
	if h.present != nil {
		errs = append(errs, h.present.close())
	}
	for _, r := range h.readers {
		errs = append(errs, r.close())
	}
	h.present, h.readers = nil, nil
	return errors.Join(errs...)
}

// dropRing gives the ring back. Readers that have it mapped keep the memory.
func (h *Channel) dropRing() error {
	h.writing, h.writer, h.sealed = false, nil, false
	if h.view == nil {
		return nil
	}
	h.view.Settle()
	if last := h.view.Last(); last+1 > h.next {
		h.next = last + 1
	}
	h.numbering = h.view.Numbering()
	if h.part != nil {
		return nil // it stays
	}
	err := errors.Join(unix.Munmap(h.memory), h.ring.Close())
	h.ring, h.memory, h.view = nil, nil, nil
	return err
}

// makeRing makes a ring for a session of the writer.
func (h *Channel) makeRing() (err error) {
	size := h.config.RingLen()
	if h.ring, err = sharedFile("unifiedd-channel", size); err != nil {
		h.ring = nil
		return err
	}
	b, err := unix.Mmap(int(h.ring.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		err = errors.Join(fmt.Errorf("map a channel: %w", err), h.ring.Close())
		h.ring = nil
		return err
	}
	h.memory, h.view = b, wire.NewChannel(b, h.config.Slots, h.config.Slot, 0)
	h.view.SetNumbering(h.numbering)
	h.view.SetLast(h.next - 1)
	return nil
}

// beginWriter makes a ring for a writer. files are the writer's: the ring, the page of who is there, and for each
// reader its page and the socket that wakes it. The caller closes those of borrowed.
func (h *Channel) beginWriter(s *session) (next uint64, files, borrowed []*os.File, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() {
		if err != nil {
			err = errors.Join(err, closeFiles(borrowed))
		}
	}()
	if h.writing {
		return 0, nil, nil, wire.Busy
	}
	if h.part == nil {
		if err := h.makeRing(); err != nil {
			return 0, nil, nil, err
		}
	}
	h.writing, h.writer = true, s
	present, err := readOnly(h.present.file)
	if err != nil {
		return 0, nil, nil, errors.Join(err, h.dropRing())
	}
	files, borrowed = append(files, h.ring, present), append(borrowed, present)
	for _, r := range h.readers {
		page, err := readOnly(r.page.file)
		if err != nil {
			return 0, nil, borrowed, errors.Join(err, h.dropRing())
		}
		files, borrowed = append(files, page, r.wakes[1]), append(borrowed, page)
	}
	return h.next, files, borrowed, nil
}

// mapTime is how long a reader waits for a writer to map the ring.
const mapTime = time.Second

// awaitMapped waits while the writer maps the ring. It says so by itself, after it was told that the channel is open: a
// reader that opens the channel right behind it would be refused otherwise.
func (h *Channel) awaitMapped() {
	for end := time.Now().Add(mapTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		h.mu.Lock()
		maps := h.writing && !h.sealed
		h.mu.Unlock()
		if !maps {
			return
		}
	}
}

// mapped says that the writer has mapped the ring: from now on nobody can map it to write.
func (h *Channel) mapped() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.writing || h.sealed {
		return wire.BadMessage
	}
	if h.part != nil {
		h.sealed = true
		h.next, h.numbering = h.view.Last()+1, h.view.Numbering()
		return nil
	}
	if _, err := unix.FcntlInt(h.ring.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("seal a channel: %w", err)
	}
	h.sealed = true
	return nil
}

// endWriter ends the writer's session, and returns the sessions of the readers that are there: they must be told.
func (h *Channel) endWriter() ([]openReader, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.dropRing()
	return h.presentReaders(func(r *channelReader) bool { return !r.config.Remote }), err
}

// beginReader makes a program a reader. files are the ring, the reader's page and the socket that wakes it. The
// caller closes those of borrowed.
func (h *Channel) beginReader(s *session) (r *channelReader, files, borrowed []*os.File, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.readers {
		if one.config.Program == s.program.name && !one.config.Remote {
			r = one
		}
	}
	switch {
	case r == nil:
		return nil, nil, nil, wire.NoSuchFlow
	case r.there:
		return nil, nil, nil, wire.Busy
	case !h.sealed:
		return nil, nil, nil, errNoWriter
	}
	only, err := readOnly(h.ring)
	if err != nil {
		return nil, nil, nil, err
	}
	r.cursor.SetCursor(h.view.Last() + 1)
	r.cursor.SetAsleep(false)
	wire.NewPresent(h.present.memory).Set(r.index, true, r.config.Blocks)
	r.there, r.session, r.openings = true, s, r.openings+1
	return r, []*os.File{only, r.page.file, r.wakes[0]}, []*os.File{only}, nil
}

// errNoWriter says that a channel has no writer yet.
var errNoWriter = errors.New("the channel has no writer now")

// endReader ends a reader's session: the writer does not wait for it any more.
func (h *Channel) endReader(r *channelReader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wire.NewPresent(h.present.memory).Set(r.index, false, false)
	r.there, r.session = false, nil
}

// slow returns readers that must not lose messages, and have.
func (h *Channel) slow() []openReader {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.view == nil {
		return nil
	}
	return h.presentReaders(func(r *channelReader) bool {
		return r.config.Strict && !r.config.Remote && r.cursor.Cursor()+h.view.Slots() <= h.view.Last()
	})
}

// ChannelStats describes a channel.
type ChannelStats struct {
	Name    string
	Writer  string
	Writing bool   // its writer is there
	Last    uint64 // sequence of the last message
	Stalls  uint64 // messages for which the present writer had to wait
	Readers []ReaderStats
}

// ReaderStats describes a reader of a channel. A reader tells its cursor and its losses itself.
type ReaderStats struct {
	Program string // or the name of a peer
	Remote  bool   // it is a peer
	Blocks  bool
	Reading bool   // it is there
	Lag     uint64 // messages that it has not read
	Lost    uint64
}

// Stats describes the channel.
func (h *Channel) Stats() ChannelStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := ChannelStats{Name: h.config.Name, Writer: h.config.Writer, Writing: h.writing, Last: h.next - 1}
	if h.view != nil {
		s.Last, s.Stalls = h.view.Last(), h.view.Stalls()
	}
	for _, r := range h.readers {
		one := ReaderStats{Program: r.config.Program, Remote: r.config.Remote, Blocks: r.config.Blocks, Reading: r.there, Lost: r.cursor.Lost()}
		if next := r.cursor.Cursor(); r.there && next <= s.Last {
			one.Lag = s.Last + 1 - next
		}
		s.Readers = append(s.Readers, one)
	}
	return s
}
