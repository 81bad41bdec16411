package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/dispatcher"
	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/osthread"
)

// statusMap is the section with the words that user space maps.
const statusMap = ".bss"

// maps are the maps that all instances of the program share.
type maps struct {
	sockets  *ebpf.Map
	counters *ebpf.Map
	rules    *ebpf.Map // a counter for each number of a rule
	status   *ebpf.Map
}

func (m *maps) replacements() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{captureMapXsks: m.sockets, captureMapCounters: m.counters, captureMapRules: m.rules, statusMap: m.status}
}

// prepare returns the compiled program set up as the configuration says, with this selection.
func (c Config) prepare(s *table) (*ebpf.CollectionSpec, error) {
	spec, err := loadCapture()
	if err != nil {
		return nil, fmt.Errorf("read the compiled XDP program: %w", err)
	}
	program := c.variant(spec)
	spec.Programs = map[string]*ebpf.ProgramSpec{onlyProgram: program}
	if !c.MultiBuffer {
		program.Flags &^= unix.BPF_F_XDP_HAS_FRAGS
	}
	spec.Maps[captureMapRules].MaxEntries = ruleNumbers
	spec.Maps[captureMapXsks].MaxEntries = uint32(Seats * c.Queues)
	if err := c.setConstants(spec); err != nil {
		return nil, err
	}
	if c.Dispatcher != nil {
		if err := extend(spec); err != nil {
			return nil, err
		}
	}
	switch {
	case s.Own != nil:
		return spec, s.Own.join(spec, c.MultiBuffer)
	case s.Rules != nil:
		program.Instructions, err = spliceRules(program.Instructions, s)
	default:
		var body asm.Instructions
		if body, err = cmp.Or(s.Filter, &filter.Expr{}).Instructions(); err == nil {
			program.Instructions, err = splice(program.Instructions, filterSymbol, body)
		}
	}
	program.Instructions = without(program.Instructions, chainSymbol, stepSymbol)
	return spec, err
}

// onlyProgram is the name of the one program of a prepared collection.
const onlyProgram = "capture"

// variant selects the program that fits the configuration, bound to the device if there is one.
func (c Config) variant(spec *ebpf.CollectionSpec) *ebpf.ProgramSpec {
	if c.Device == 0 {
		return spec.Programs[captureProgUnifieddCapture]
	}
	program := spec.Programs[captureProgUnifieddCaptureCard]
	program.Ifindex = uint32(c.Device)
	program.Flags |= unix.BPF_F_XDP_DEV_BOUND_ONLY
	return program
}

func (c Config) setConstants(spec *ebpf.CollectionSpec) error {
	timestamps := uint8(0)
	if c.Timestamps {
		timestamps = 1
	}
	if err := spec.Variables[captureVarMaxLen].Set(c.MaxLen); err != nil {
		return fmt.Errorf("set the longest packet: %w", err)
	}
	if err := spec.Variables[captureVarQueues].Set(uint32(c.Queues)); err != nil {
		return fmt.Errorf("set the number of queues: %w", err)
	}
	if err := spec.Variables[captureVarTimestamps].Set(timestamps); err != nil {
		return fmt.Errorf("set timestamps: %w", err)
	}
	return nil
}

// load loads a prepared program into the kernel, with the given maps or, if there are none, with
// new ones. The caller closes the collection.
func (c *Config) load(spec *ebpf.CollectionSpec, s *Selection, shared map[string]*ebpf.Map) (*ebpf.Collection, error) {
	if c.Dispatcher != nil {
		return c.loadExtension(spec, s, shared)
	}
	return load(spec, s, shared)
}

func load(spec *ebpf.CollectionSpec, s *Selection, shared map[string]*ebpf.Map) (*ebpf.Collection, error) {
	level := ebpf.LogLevelStats // logs errors without a line per instruction
	if s.Own != nil {
		level = 0 // its author wants those
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Programs:        ebpf.ProgramOptions{LogLevel: level},
		MapReplacements: shared,
	})
	if err != nil {
		return nil, loadError(err, s)
	}
	return collection, nil
}

// Load puts the program and its maps into the kernel. It is not on an interface
// yet. The caller closes the Program. Errors match [ErrRefused] when the
// verifier does not accept the filter, and filter.ErrTooLarge when it cannot be
// compiled.
func Load(c Config) (*Program, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := oneTable(c.selection())
	s.number(&table{})
	spec, err := c.prepare(&s)
	if err != nil {
		return nil, err
	}
	collection, err := c.load(spec, &s.Selection, nil)
	if err != nil {
		return nil, err
	}
	defer collection.Close()
	home, err := c.home()
	if err != nil {
		return nil, fmt.Errorf("load XDP program: %w", err)
	}
	refused, err := mapWord(collection.Maps[statusMap], spec.Variables[captureVarMetaRefused].Offset)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load XDP program: map its status word: %w", err), home.Close())
	}
	return newProgram(c, s, spec, collection, refused, home)
}

// The functions whose bodies are replaced: by the filter, and by a call of the user's program.
const (
	filterSymbol = "unifiedd_filter"
	ownSymbol    = "unifiedd_own"
)

// The functions that filters with protochain call, first the one that they call directly.
const (
	chainSymbol = "unifiedd_chain"
	stepSymbol  = "unifiedd_step"
)

// splice returns the program with the body of one of its functions replaced. The first
// instruction keeps its name and its type information, which the verifier demands of a
// function.
func splice(program asm.Instructions, symbol string, body asm.Instructions) (asm.Instructions, error) {
	start, end := function(program, symbol)
	if start < 0 || len(body) == 0 {
		return nil, errNoFunction(symbol)
	}
	result := append(asm.Instructions{}, program[:start]...)
	result = append(result, body[0].WithMetadata(program[start].Metadata))
	result = append(result, body[1:]...)
	return append(result, program[end:]...), nil
}

func errNoFunction(symbol string) error {
	return errors.New("replace the filter: the compiled program has no function " + symbol)
}

// without removes those of the functions that nothing calls, since the verifier refuses them.
func without(program asm.Instructions, names ...string) asm.Instructions {
	for _, name := range names {
		if start, end := function(program, name); start >= 0 && !calls(program, name) {
			program = append(program[:start], program[end:]...)
		}
	}
	return program
}

// calls reports whether a function of the program is called.
func calls(program asm.Instructions, name string) bool {
	for _, ins := range program {
		if ins.IsFunctionReference() && ins.Reference() == name {
			return true
		}
	}
	return false
}

// function returns where a function begins and ends, or -1.
func function(program asm.Instructions, name string) (start, end int) {
	start = -1
	for i, ins := range program {
		switch {
		case start >= 0 && ins.Symbol() != "":
			return start, i
		case ins.Symbol() == name:
			start = i
		}
	}
	return start, len(program)
}

// extend turns the prepared program into one that a dispatcher calls. The dispatcher, not the program,
// decides whether it gets packets of several buffers.
func extend(spec *ebpf.CollectionSpec) error {
	program := spec.Programs[onlyProgram]
	program.Type, program.AttachType = ebpf.Extension, ebpf.AttachNone
	program.Flags &^= unix.BPF_F_XDP_HAS_FRAGS
	if err := spec.Variables[captureVarDispatched].Set(uint8(1)); err != nil {
		return fmt.Errorf("set that the program is in a dispatcher: %w", err)
	}
	return nil
}

// loadExtension loads the program for the dispatcher on the interface, so that the kernel checks
// what that dispatcher accepts. A dispatcher whose functions change no packets accepts no program
// that writes timestamps; loadExtension then loads one that does not.
func (c *Config) loadExtension(spec *ebpf.CollectionSpec, s *Selection, shared map[string]*ebpf.Map) (*ebpf.Collection, error) {
	target, err := c.Dispatcher.Target()
	if err != nil {
		return nil, fmt.Errorf("load XDP program: %w", err)
	}
	defer target.Close()
	program := spec.Programs[onlyProgram]
	program.AttachTarget, program.AttachTo = target, dispatcher.Function
	stamps := c.Timestamps && !c.unstamped
	if !stamps {
		program.Instructions = unstamped(program.Instructions)
	}
	collection, err := load(spec, s, shared)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("%w: %w (with CAP_PERFMON, too, it is the kernel that loads no extension programs: some are locked down against them)", ErrNoExtensions, err)
	}
	if !errors.Is(err, ErrRefused) || !stamps {
		return collection, err
	}
	program.Instructions = unstamped(program.Instructions)
	collection, again := load(spec, s, shared)
	if again != nil {
		return nil, err
	}
	c.unstamped = true
	return collection, nil
}

// unstamped removes the calls that make room for timestamps; the program then behaves as if there
// were none.
func unstamped(program asm.Instructions) asm.Instructions {
	for i := range program {
		if ins := &program[i]; ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnXdpAdjustMeta {
			*ins = asm.Mov.Imm(asm.R0, -1).WithMetadata(ins.Metadata)
		}
	}
	return program
}

// join puts the program into the dispatcher.
func (p *Program) join(ifindex int, mode Mode) error {
	c := &p.config
	has := Driver
	if c.Dispatcher.Generic() {
		has = Generic
	}
	if mode != Any && mode != has {
		return fmt.Errorf("attach to interface %d in %s mode: %w: %s", ifindex, mode, ErrOtherMode, has)
	}
	slot, err := c.Dispatcher.Join(p.program, dispatcher.Settings{
		Priority: c.Priority, Actions: dispatcher.DefaultActions, Fragments: c.MultiBuffer,
	})
	if errors.Is(err, dispatcher.ErrRefused) {
		err = fmt.Errorf("%w: %w (lower the MTU; or take out the programs of the dispatcher that take no packets of several buffers, as with xdp-loader unload)", ErrDriverRefused, err)
	}
	if err != nil {
		return fmt.Errorf("attach to interface %d in %s mode: %w", ifindex, has, err)
	}
	p.link, p.mode = slot, has
	return nil
}

// InDispatcher reports whether the program was loaded to join a dispatcher.
func (p *Program) InDispatcher() bool { return p.config.Dispatcher != nil }

// Unstamped reports whether timestamps were requested that the program cannot write, since the dispatcher
// accepts no program that does.
func (p *Program) Unstamped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config.Timestamps && p.config.unstamped
}

// Dispatched returns the ID of the dispatcher on the interface if this program is in it, else 0.
// Other processes may exchange the dispatcher, and so change the ID. Errors are those of package
// dispatcher.
func (p *Program) Dispatched() (id uint32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot, ok := p.link.(*dispatcher.Slot)
	if !ok {
		return 0, nil
	}
	return slot.Here()
}

// home returns the calling thread's namespace if the program is bound to a device. The kernel looks
// up the device in the namespace of the thread that loads the program. That also applies to later
// loads with another filter.
func (c Config) home() (osthread.Namespace, error) {
	if c.Device == 0 {
		return osthread.Namespace{}, nil
	}
	return osthread.Here()
}
