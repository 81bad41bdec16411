package config

import "path/filepath"

// Attach configures which programs of this host may attach to the daemon.
type Attach struct {
	Socket   string    // absolute path of the unix socket where they meet the daemon
	Programs []Program // names are unique
	Channels []Channel // names are unique
	States   []State   // names are unique
}

// Channel carries messages of one program to others, through memory that they share.
type Channel struct {
	Name    string
	Writer  string // name of the program that writes; empty: a flow does, which gets it from a peer
	Readers []ChannelReader
	Slots   int  // messages that the channel holds, a power of two
	Slot    Size // bytes of a slot, a multiple of 64: a message has 16 bytes less at most
	Pos     Pos  // where the channel is configured
}

// ChannelReader is a program that reads a channel.
type ChannelReader struct {
	Program string
	Policy  Policy // PolicyWait, PolicyDropOldest or PolicyDisconnect
}

// Program is a program that may attach.
type Program struct {
	Name string
	User string // name or number of the only user that may use the name
	In   Size   // memory that the program may only read; whole pages of 2 MiB
	Out  Size   // memory that the program may write; whole pages of 2 MiB
	Pos  Pos    // where the program is configured
}

// DefaultAttachSocket is the default path of the socket where programs attach.
const DefaultAttachSocket = "/run/unifiedd/attach.sock"

// Bounds of programs.
const (
	maxPrograms   = 64
	maxChannels   = 64
	maxReaders    = 16
	minSlots      = 16
	maxSlots      = 1 << 20
	minSlot       = 64
	maxSlot       = 64 * KiB
	maxChannel    = GiB
	channelUnit   = 64
	defaultSlots  = 4096
	defaultSlot   = 256
	programUnit   = 2 * MiB
	maxProgram    = 64 * GiB
	maxEntries    = 4096 // of a ring
	minEntries    = 64
	defaultWindow = 256
)

// Submitting returns how many flows take messages of a program: they share the memory that it writes.
func (c *Config) Submitting(program string) int {
	return c.count(func(f *Flow) bool { return f.From.Attach == program })
}

// Receiving returns how many flows give to a program: they share the memory that it reads.
func (c *Config) Receiving(program string) int {
	return c.count(func(f *Flow) bool {
		return f.To.Attach == program || f.To.Order != nil && f.To.Order.Replies && f.From.Attach == program
	})
}

func (c *Config) count(is func(*Flow) bool) (n int) {
	for i := range c.Flows {
		if is(&c.Flows[i]) {
			n++
		}
	}
	return n
}

// Program returns the program with a name, or nil.
func (c *Config) Program(name string) *Program {
	for i := range c.Attach.Programs {
		if c.Attach.Programs[i].Name == name {
			return &c.Attach.Programs[i]
		}
	}
	return nil
}

func (a *Attach) complete() {
	for i := range a.Programs {
		p := &a.Programs[i]
		p.In, p.Out = p.In.roundUp(programUnit), p.Out.roundUp(programUnit)
	}
}

// attach checks the programs.
func (v *validator) attach() {
	a := &v.Attach
	v.checkErr("attach.socket", checkPath(a.Socket, maxSocket))
	if filepath.Clean(a.Socket) == filepath.Clean(v.Control.Socket) {
		v.refuse("attach.socket", wrong("choose another path", "%s is the control socket", quote(a.Socket)))
	}
	v.check(len(a.Programs) <= maxPrograms, "attach.programs", "%d programs are too many; at most %d are possible", len(a.Programs), maxPrograms)
	names := newTaken[string](v, "program")
	for i := range a.Programs {
		p, at := &a.Programs[i], index("attach.programs", i)
		v.name(join(at, "name"), p.Name)
		names.take(join(at, "name"), p.Name)
		if v.need(join(at, "user"), p.User, "the user whose processes may attach under this name") {
			v.check(isUser(p.User), join(at, "user"), "%s is not a user's name or number", quote(p.User))
		}
		v.check(p.In <= maxProgram, join(at, "in"), "%s are more than %s", p.In, maxProgram)
		v.check(p.Out <= maxProgram, join(at, "out"), "%s are more than %s", p.Out, maxProgram)
	}
	v.channels()
	v.states()
}

// channels checks the channels.
func (v *validator) channels() {
	a := &v.Attach
	v.check(len(a.Channels) <= maxChannels, "attach.channels", "%d channels are too many; at most %d are possible", len(a.Channels), maxChannels)
	names := newTaken[string](v, "channel")
	for i := range a.Channels {
		c, at := &a.Channels[i], index("attach.channels", i)
		v.name(join(at, "name"), c.Name)
		names.take(join(at, "name"), c.Name)
		v.writer(at, c)
		v.check(within(c.Slots, minSlots, maxSlots) && powerOfTwo(uint64(c.Slots)), join(at, "slots"), "%d is not a power of two from %d to %d", c.Slots, minSlots, maxSlots)
		v.check(within(c.Slot, minSlot, maxSlot) && c.Slot%channelUnit == 0, join(at, "slot"), "%s is not a multiple of %d from %s to %s", c.Slot, channelUnit, Size(minSlot), Size(maxSlot))
		v.check(c.Slots > maxSlots || Size(c.Slots)*c.Slot <= maxChannel, at, "%d slots of %s are more than %s", c.Slots, c.Slot, Size(maxChannel))
		readers := join(at, "readers")
		v.readersOf(readers, c)
		once := newTaken[string](v, "reader")
		for k, r := range c.Readers {
			reader := index(readers, k)
			v.known(join(reader, "program"), r.Program)
			once.take(join(reader, "program"), r.Program)
			v.checkErr(join(reader, "policy"), member(r.Policy, channelPolicies))
		}
	}
}

// channelPolicies are the policies of a channel's readers: the newest message is never lost.
var channelPolicies = []Policy{PolicyWait, PolicyDropOldest, PolicyDisconnect}

// program checks that a flow's program is configured and has memory for the flow.
func (v *validator) program(path, name string, submits bool) {
	p := v.known(path, name)
	switch {
	case p == nil:
	case submits && p.Out == 0:
		v.refuse(path, wrong("say out: there, such as out: 16MiB", "program %s has no memory to write: attach.programs gives it none", quote(name)))
	case !submits && p.In == 0:
		v.refuse(path, wrong("say in: there, such as in: 32MiB", "program %s has no memory to read: attach.programs gives it none", quote(name)))
	}
}

// known refuses a name that no program has.
func (v *validator) known(path, name string) *Program {
	if !v.need(path, name, "the name of a program in attach.programs") {
		return nil
	}
	if p := v.Config.Program(name); p != nil {
		return p
	}
	names := make([]string, len(v.Attach.Programs))
	for i := range v.Attach.Programs {
		names[i] = v.Attach.Programs[i].Name
	}
	hint := "add it there"
	if meant, ok := suggest(name, names); ok {
		hint = didYouMean(meant)
	}
	v.refuse(path, wrong(hint, "there is no program %s in attach.programs", quote(name)))
	return nil
}

// submits checks the source of a flow that takes messages of a program.
func (v *validator) submits(path string, f *Flow) {
	v.program(join(path, "attach"), f.From.Attach, true)
	v.entries(join(path, "window"), f.From.Window)
	if to := &f.To; f.From.Trusted && to.Choose == ChooseAll && to.Acknowledge != AcknowledgeAll && len(to.Peers) > 1 {
		v.refuse(join(path, "trusted"), wrong("say to.acknowledge: all, or remove it", "the program has a message's memory again with its acknowledgement, and then peers that have not acknowledged it still need that memory"))
	}
	m := f.From.Message
	if f.Kind() == "" {
		return // what it goes to is refused
	}
	if m == 0 || !v.Region.InFrame(m) {
		v.refuse(join(path, "message"), wrong("raise region.frame, or lower it", "%d is not from 1 to %d, which a frame has room for", m, Size(v.Region.Frame)-min(Size(v.Region.Frame), MessageOverhead)))
	} else if f.Kind() == KindAttachStorage {
		v.checkErr(join(path, "message"), v.batch(f))
	}
}

// gives checks the sink of a flow to a program.
func (v *validator) gives(path string, f *Flow) {
	to := &f.To
	v.program(join(path, "attach"), to.Attach, false)
	v.entries(join(path, "queue"), to.Queue)
	if f.Kind() == KindStorageAttach {
		return
	}
	v.checkErr(join(path, "policy"), member(to.Policy, allPolicies))
	if f.Kind() == KindNetworkAttach {
		v.lands(path, f)
	}
	p := v.Config.Program(to.Attach)
	if f.Kind() != KindRDMAAttach || p == nil || v.Region.Frame == 0 {
		return
	}
	from := join(parent(path), "from")
	if !v.Region.InFrame(f.From.Message) {
		v.refuse(join(from, "message"), wrong("lower it", "messages for a program must fit a frame, and %s do not", f.From.Message))
		return
	}
	need := f.From.Window*f.From.Clients + relayed
	have := int(uint64(p.In)/uint64(v.Region.Frame)) / max(1, v.Receiving(to.Attach))
	v.check(need <= have, join(path, "attach"), "%d frames of the memory that program %s reads are this flow's, and its clients need %d, window for each: raise in of the program, or lower clients or window", have, quote(to.Attach), need)
}

// lands checks where packets of an interface land that a program gets.
func (v *validator) lands(path string, f *Flow) {
	to, at := &f.To, join(path, "place")
	v.checkErr(at, member(to.Place, allPlaces))
	switch {
	case v.explained(at):
		return
	case to.Place != PlaceHere:
		v.check(!to.Expose, join(path, "expose"), "has a meaning only with place: here: the program gets copies of what the filter takes, and sees nothing else")
		return
	case f.From.ZeroCopy != ZeroCopyCopy && !to.Expose:
		v.refuse(at, wrong("say expose: true beside it, or from.zero_copy: copy", "with zero copy the card writes all packets of the queues into memory that program %s reads, also those that the filter leaves to the host", quote(to.Attach)))
	}
	p := v.Config.Program(to.Attach)
	if p == nil || v.Region.Frame <= 0 || v.explained(join(parent(path), "from.ring")) {
		return
	}
	need := max(1, len(f.From.Queues))*f.From.Ring + besideRings
	have := int(uint64(p.In)/uint64(v.Region.Frame)) / max(1, v.Receiving(to.Attach))
	v.check(need <= have, at, "%d frames of the memory that program %s reads are this flow's, and it needs %d, ring for each queue and %d: raise in of the program, or lower from.ring", have, quote(to.Attach), need, besideRings)
}

// besideRings is how many frames a flow needs in addition to those of its rings, if packets land in a program's
// memory.
const besideRings = 128

// entries checks the number of entries of a ring.
func (v *validator) entries(path string, n int) {
	v.check(within(n, minEntries, maxEntries) && powerOfTwo(uint64(n)), path, "%d is not a power of two from %d to %d: it is the entries of a ring", n, minEntries, maxEntries)
}
