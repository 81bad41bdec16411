package bpf

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/filter"
)

// statusMap is the section with the words that user space maps.
const statusMap = ".bss"

// maps are what all instances of the program share.
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

// onlyProgram is what the one program of a prepared collection is called.
const onlyProgram = "capture"

// variant is the program that fits the configuration, bound to the device if it asks one.
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

// load puts a prepared program into the kernel, on the maps given or, when there
// are none, on new ones. The caller closes the collection.
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
		return nil, errors.Join(fmt.Errorf("load XDP program: map its status word: %w", err), home.close())
	}
	return newProgram(c, s, spec, collection, refused, home)
}
