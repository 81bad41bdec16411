package config

import "go.yaml.in/yaml/v4"

// State is memory that the daemon writes, as messages of one flow tell it, and that programs and RDMA peers read: objects
// of a fixed room, or a table of keys.
type State struct {
	Name    string
	Objects int      // objects; 0: it has none
	Room    Size     // bytes of an object
	Keys    int      // keys; 0: it has none
	Words   int      // words, which peers change by atomic operations; 0: it has none
	Readers []string // names of programs that may read it
	Remote  StateRemote
	Pos     Pos // where the state is configured
}

// StateRemote lets peers read a state over RDMA.
type StateRemote struct {
	RDMA        string   // device, see [SoftDevice]; empty: no peer can read it
	Listen      string   // TCP address, host:port, where readers connect
	Clients     int      // the largest number of readers at a time
	Allow       []string // names of certificates that may connect; nil: all that the authority signed
	AllowAnyGID bool     // a reader's queue pair may have another address than its connection
	// Worker is the worker that answers readers, if the device is RoCE in software. It spins. Empty: the device's own
	// thread does, which sleeps until packets come.
	Worker string
}

// Bounds of states.
const (
	maxStates           = 16
	maxStateReaders     = 64
	maxObjects          = 1 << 24
	maxKeys             = 1 << 26
	maxWords            = 1 << 20
	maxRoom             = MiB
	maxState            = 16 * GiB
	updateHeader        = 16 // bytes of an update before its payload
	keyAndValue         = 120
	objectOverhead      = 80
	bytesPerKey         = 160
	maxSlices           = 64 // of programs and states
	defaultStateClients = 16
)

// Has says what the state has: objects, keys or words.
func (s *State) Has() string {
	switch {
	case s.Words > 0:
		return "words"
	case s.Keys > 0:
		return "keys"
	}
	return "objects"
}

// State returns the state with a name, or nil.
func (c *Config) State(name string) *State {
	for i := range c.Attach.States {
		if c.Attach.States[i].Name == name {
			return &c.Attach.States[i]
		}
	}
	return nil
}

// states checks the states.
func (v *validator) states() {
	a := &v.Attach
	v.resolveStates()
	v.check(len(a.States) <= maxStates, "attach.states", "%d states are too many; at most %d are possible", len(a.States), maxStates)
	v.check(len(a.States) > maxStates || len(a.Programs) > maxPrograms || len(a.States)+len(a.Programs) <= maxSlices, "attach.states",
		"%d states and %d programs are too many; at most %d are possible together", len(a.States), len(a.Programs), maxSlices)
	names := newTaken[string](v, "state")
	for i := range a.States {
		s, at := &a.States[i], index("attach.states", i)
		v.name(join(at, "name"), s.Name)
		names.take(join(at, "name"), s.Name)
		v.contents(at, s)
		v.stateReaders(at, s)
	}
}

// contents checks what a state has.
func (v *validator) contents(at string, s *State) {
	objects, keys, words := v.given(join(at, "objects"), "") || s.Objects != 0, v.given(join(at, "keys"), "") || s.Keys != 0, v.given(join(at, "words"), "") || s.Words != 0
	switch {
	case objects && keys:
		v.refuse(join(at, "keys"), wrong("make two states", "a state has either objects or keys"))
	case words && (objects || keys):
		v.refuse(join(at, "words"), wrong("make two states", "a state has either words or what a flow updates"))
	case words:
		v.check(within(s.Words, 1, maxWords), join(at, "words"), "%d is not from 1 to %d", s.Words, maxWords)
		v.check(s.Room == 0, join(at, "room"), "has a meaning only for objects: a word has 8 bytes")
		v.check(s.Remote.RDMA != "" || v.given(join(at, "rdma"), ""), at, "nobody can change the words: say rdma and listen, for peers")
	case keys:
		v.check(within(s.Keys, 1, maxKeys), join(at, "keys"), "%d is not from 1 to %d", s.Keys, maxKeys)
		v.check(s.Room == 0, join(at, "room"), "has a meaning only for objects: key and value have %d bytes together", keyAndValue)
	case objects:
		v.check(within(s.Objects, 1, maxObjects), join(at, "objects"), "%d is not from 1 to %d", s.Objects, maxObjects)
		v.check(s.Room >= 1 && s.Room <= maxRoom, join(at, "room"), "%s are not from 1 byte to %s, the longest payload of an object", s.Room, maxRoom)
		v.check(s.Objects > maxObjects || s.Room > maxRoom || Size(max(0, s.Objects))*(s.Room+objectOverhead) <= maxState, at, "%d objects of %s are more than %s", s.Objects, s.Room, maxState)
	default:
		v.refuse(at, wrong("such as objects: 1024 and room: 336, or keys: 65536, or words: 16", "say what the state has"))
	}
}

// stateReaders checks who reads a state.
func (v *validator) stateReaders(at string, s *State) {
	readers := join(at, "readers")
	v.check(len(s.Readers) <= maxStateReaders, readers, "%d readers are listed; at most %d are possible", len(s.Readers), maxStateReaders)
	once := newTaken[string](v, "reader")
	for i, name := range s.Readers {
		v.known(index(readers, i), name)
		once.take(index(readers, i), name)
	}
	r := &s.Remote
	if r.RDMA != "" || v.given(join(at, "rdma"), "") || r.Listen != "" || v.given(join(at, "listen"), "") {
		v.clientListener(at, clientListener{r.RDMA, r.Listen, 1, r.Clients, r.Allow})
		v.stateWorker(join(at, "worker"), r)
		return
	}
	for key, given := range map[string]bool{"allow": r.Allow != nil, "allow_any_gid": r.AllowAnyGID} {
		v.check(!given, join(at, key), "has a meaning only with rdma and listen: it says which peers may read the state")
	}
	v.check(r.Worker == "", join(at, "worker"), "has a meaning only with rdma and listen: it answers the peers that read the state")
	v.check(len(s.Readers) > 0, at, "nobody reads the state: list readers, or say rdma and listen")
}

// stateWorker checks the worker that answers readers.
func (v *validator) stateWorker(at string, r *StateRemote) {
	if r.Worker == "" {
		return
	}
	v.worker(at, r.Worker)
	for i := range v.Workers {
		if w := &v.Workers[i]; w.Name == r.Worker && w.Wait != WaitSpin && !v.explained(at) {
			v.refuse(at, wrong("say wait: spin there, or remove the key: the device's own thread then answers", "worker %s sleeps, and readers would wait for it", quote(w.Name)))
		}
	}
	if _, soft := SoftDevice(r.RDMA); !soft && r.RDMA != "" && !v.explained(at) {
		v.refuse(at, wrong("remove it", "has a meaning only for RoCE in software: the card %s answers by itself", r.RDMA))
	}
}

// updates checks the sink of a flow that updates a state.
func (v *validator) updates(path string, f *Flow) {
	at := join(path, "state")
	if !v.need(at, f.To.State, "the name of a state in attach.states") {
		return
	}
	s := v.Config.State(f.To.State)
	if s == nil {
		names := make([]string, len(v.Attach.States))
		for i := range v.Attach.States {
			names[i] = v.Attach.States[i].Name
		}
		hint := "add it there"
		if meant, ok := suggest(f.To.State, names); ok {
			hint = didYouMean(meant)
		}
		v.refuse(at, wrong(hint, "there is no state %s in attach.states", quote(f.To.State)))
		return
	}
	if s.Words > 0 {
		v.refuse(at, wrong("name a state with objects or keys", "state %s has words: peers change them, and no flow", quote(s.Name)))
		return
	}
	message, need := join(parent(path), "from.message"), Size(updateHeader+keyAndValue)
	if s.Keys == 0 {
		need = updateHeader + min(s.Room, maxRoom)
	}
	if f.From.Message > 0 && f.From.Message < need && !v.explained(message) {
		v.refuse(v.first(message, at), wrong("say from.message: "+need.String(), "messages of %s are too short for state %s: an update has %d bytes and its payload", f.From.Message, quote(s.Name), updateHeader))
	}
}

// resolveStates replaces the alternative names of interfaces in the states' devices by their first names.
func (v *validator) resolveStates() {
	if v.FindInterface == nil {
		return
	}
	for i := range v.Attach.States {
		device := &v.Attach.States[i].Remote.RDMA
		iface, is := SoftDevice(*device)
		if !is || checkInterface(iface) != nil {
			continue
		}
		if d, err := v.FindInterface(iface); err == nil {
			*device = SoftPrefix + d.Name
		}
	}
}

// states records the devices and addresses of states.
func (s *shared) states() {
	for i := range s.v.Attach.States {
		r, at := &s.v.Attach.States[i].Remote, index("attach.states", i)
		s.device(join(at, "rdma"), r.RDMA)
		s.listen(join(at, "listen"), r.Listen, "")
	}
}

// state reads a state.
func (d *decoder) state(path string, n *yaml.Node, s *State) {
	r := &s.Remote
	d.mapping(path, n, fields{
		"name":          set(d, &s.Name, parseText),
		"objects":       set(d, &s.Objects, parseInt),
		"room":          set(d, &s.Room, parseSize),
		"keys":          set(d, &s.Keys, parseInt),
		"words":         set(d, &s.Words, parseInt),
		"readers":       readTexts(d, &s.Readers),
		"rdma":          set(d, &r.RDMA, parseText),
		"listen":        set(d, &r.Listen, parseText),
		"clients":       set(d, &r.Clients, parseInt),
		"allow":         readTexts(d, &r.Allow),
		"allow_any_gid": set(d, &r.AllowAnyGID, parseBool),
		"worker":        set(d, &r.Worker, parseText),
	})
}
