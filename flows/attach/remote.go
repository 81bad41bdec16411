package attach

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// Outlet is a channel as a flow uses it that passes it on to other machines: the ring, which a program writes, and a
// [RemoteReader] for each peer.
type Outlet struct {
	channel *Channel
	readers []*RemoteReader
}

// errUsed says that a channel has a flow already.
var errUsed = errors.New("another flow uses the channel")

// use finds a channel for a flow. writer says that a program must write it.
func (h *Hub) use(name string, writer bool) (*Channel, error) {
	c := h.channels[name]
	switch {
	case c == nil:
		return nil, fmt.Errorf("there is no channel %s (add it to attach.channels)", name)
	case c.part == nil:
		return nil, fmt.Errorf("the ring of channel %s is not in the region, because no flow used the channel when the daemon began (restart it)", name)
	case (c.config.Writer != "") != writer:
		return nil, fmt.Errorf("channel %s has another end (restart the daemon)", name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used {
		return nil, fmt.Errorf("channel %s: %w", name, errUsed)
	}
	c.used = true
	return c, nil
}

// unuse ends use.
func (c *Channel) unuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = false
}

// Outlet gives a channel to a flow that passes it on to peers. If the writer does not know of one of them yet, its port
// is closed, so that it opens it again. The flow calls Close.
func (h *Hub) Outlet(name string, peers []ReaderConfig) (*Outlet, error) {
	c, err := h.use(name, true)
	if err != nil {
		return nil, err
	}
	writer, err := c.setPeers(peers)
	if err != nil {
		c.unuse()
		return nil, fmt.Errorf("channel %s: %w", name, err)
	}
	if writer != nil {
		writer.closeWriter(c, &wire.Refusal{Reason: wire.Closing, Text: "the peers of channel " + name + " have changed"})
	}
	o := &Outlet{channel: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.readers {
		if r.config.Remote {
			o.readers = append(o.readers, &RemoteReader{c, r})
		}
	}
	return o, nil
}

// setPeers makes the peers of a channel those of a list. If they have changed it returns the writer's session, if there
// is one.
func (c *Channel) setPeers(peers []ReaderConfig) (writer *session, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	local := slices.IndexFunc(c.readers, func(r *channelReader) bool { return r.config.Remote })
	if local < 0 {
		local = len(c.readers)
	}
	if slices.EqualFunc(c.readers[local:], peers, func(r *channelReader, p ReaderConfig) bool { return r.config == p }) {
		return nil, nil
	}
	for _, r := range c.readers[local:] {
		err = errors.Join(err, r.close())
	}
	c.readers = slices.Clip(c.readers[:local])
	return c.writer, errors.Join(err, c.addReaders(peers))
}

// Close ends the flow's use of the channel. Its remote readers must have ended.
func (o *Outlet) Close() error {
	o.channel.unuse()
	return nil
}

// Ring returns the ring. The flow only reads it, on the worker's thread.
func (o *Outlet) Ring() *wire.Channel { return o.channel.view }

// Base returns where the ring begins in the region.
func (o *Outlet) Base() uint64 { return o.channel.part.Base() }

// Readers returns the remote readers, in the order of the configuration.
func (o *Outlet) Readers() []*RemoteReader { return o.readers }

// Begun reports whether a writer has told which sequences it writes. Before that they are not known: the daemon may have
// begun anew, and the writer goes on with its own.
func (o *Outlet) Begun() bool {
	o.channel.mu.Lock()
	defer o.channel.mu.Unlock()
	return o.channel.sealed || o.channel.next > 1
}

// RemoteReader is a peer as the writer of a channel sees it: a reader like others, with a cursor and a socket that wakes
// it. Begin and End may be called from any goroutine, the other methods from the worker's thread.
type RemoteReader struct {
	channel *Channel
	reader  *channelReader
}

// Name returns the name of the peer.
func (r *RemoteReader) Name() string { return r.reader.config.Program }

// Blocks reports whether the writer waits for it, and Strict whether it is disconnected when it is too slow.
func (r *RemoteReader) Blocks() bool { return r.reader.config.Blocks }

// Strict reports whether the peer is disconnected when it is too slow.
func (r *RemoteReader) Strict() bool { return r.reader.config.Strict }

// Begin makes it a reader from a sequence on.
func (r *RemoteReader) Begin(next uint64) {
	r.channel.mu.Lock()
	defer r.channel.mu.Unlock()
	r.reader.cursor.SetCursor(next)
	r.reader.there = true
	wire.NewPresent(r.channel.present.memory).Set(r.reader.index, true, r.reader.config.Blocks)
}

// End ends Begin: the writer does not wait for it any more.
func (r *RemoteReader) End() {
	r.channel.mu.Lock()
	defer r.channel.mu.Unlock()
	wire.NewPresent(r.channel.present.memory).Set(r.reader.index, false, false)
	r.reader.cursor.SetAsleep(false)
	r.reader.there = false
}

// Page returns the page with the cursor, which is the peer's next sequence that it has not acknowledged.
func (r *RemoteReader) Page() *wire.ReaderPage { return r.reader.cursor }

// FD returns the descriptor that polls readable when the writer wakes the reader.
func (r *RemoteReader) FD() int { return int(r.reader.wakes[0].Fd()) }

// Woken consumes what FD signals. It ends a writer that breaks the rules.
func (r *RemoteReader) Woken(fd int) {
	if !drain(fd) {
		return
	}
	r.channel.mu.Lock()
	writer := r.channel.writer
	r.channel.mu.Unlock()
	if writer != nil { // it may take a moment to tell the writer
		go writer.end(&wire.Refusal{Reason: wire.BadDescriptor, Text: "channel " + r.channel.config.Name + ": " + wire.BadDescriptor.Error()})
	}
}

// Inlet is a channel as a flow uses it that gets it from another machine: the ring, which the peer writes by RDMA WRITE
// up to a sequence that the flow publishes. Programs read it.
type Inlet struct {
	channel *Channel
	present wire.Present
}

// Inlet gives a channel without a writing program to a flow. The flow calls Close.
func (h *Hub) Inlet(name string) (*Inlet, error) {
	c, err := h.use(name, false)
	if err != nil {
		return nil, err
	}
	return &Inlet{c, wire.NewPresent(c.present.memory)}, nil
}

// Close ends the flow's use of the channel. Programs still read what the ring has.
func (i *Inlet) Close() error {
	i.Connected(false)
	i.channel.unuse()
	return nil
}

// Ring returns the ring.
func (i *Inlet) Ring() *wire.Channel { return i.channel.view }

// Slots returns the number of slots, and the bytes of each.
func (i *Inlet) Slots() (slots, slot uint32) { return i.channel.config.Slots, i.channel.config.Slot }

// Slots returns the number of slots, and the bytes of each.
func (o *Outlet) Slots() (slots, slot uint32) { return o.channel.config.Slots, o.channel.config.Slot }

// Base returns where the ring begins in the region.
func (i *Inlet) Base() uint64 { return i.channel.part.Base() }

// Connected says whether a peer writes.
func (i *Inlet) Connected(is bool) {
	i.channel.mu.Lock()
	defer i.channel.mu.Unlock()
	i.channel.writing = is
}

// Begin prepares the ring for a peer whose messages go on after last. If their numbering is not that of the ring, it
// empties the ring and ends the ports of all readers. No peer may write meanwhile, and no other method may be called.
func (i *Inlet) Begin(numbering, last uint64) {
	c := i.channel
	c.mu.Lock()
	var there []openReader
	if c.view.Numbering() != numbering {
		there = c.presentReaders(func(*channelReader) bool { return true })
		c.view.SetNumbering(numbering) // readers look at it after they have copied a message
		c.view.Forget()
	}
	c.view.SetLast(last)
	c.sealed = true
	c.mu.Unlock()
	closeReaders(there, "the sequences of channel "+c.config.Name+" begin again")
	i.wake()
}

// Cut ends the ports of all readers, because the peer's daemon has lost messages that it must not lose.
func (i *Inlet) Cut() {
	c := i.channel
	c.mu.Lock()
	there := c.presentReaders(func(*channelReader) bool { return true })
	c.mu.Unlock()
	for _, r := range there {
		r.close(&wire.Refusal{Reason: wire.TooSlow, Text: "channel " + c.config.Name + ": the writer has written over messages that were not sent to this machine"})
	}
}

// Publish says that everything up to a sequence has arrived. The worker's thread calls it.
func (i *Inlet) Publish(last uint64) {
	i.channel.view.SetLast(last)
	i.wake()
}

// wake wakes readers that sleep.
func (i *Inlet) wake() {
	for _, r := range i.channel.readers {
		if r.cursor.Asleep() {
			_ = unix.Send(r.wakeFD, wakeByte[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) // EAGAIN: it is readable already
		}
	}
}

// Acknowledged returns up to which sequence all readers have read for which the writer waits: last if there is none. A
// reader writes its cursor itself: what it says is limited to what there is.
func (i *Inlet) Acknowledged(last uint64) uint64 {
	least := last
	for _, r := range i.channel.readers {
		if there, blocks := i.present.Has(r.index); there && blocks {
			least = min(least, max(r.cursor.Cursor(), 1)-1)
		}
	}
	return least
}
