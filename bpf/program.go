package bpf

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/unifiedd/unifiedd/bpf/filter"
)

// Program is the XDP program in the kernel, with its maps, and its attachment
// to one interface once there is one.
type Program struct {
	config Config
	maps   maps
	home   namespace // where Load ran, of a program that is bound to a device

	// refused is the word the XDP program sets when it could not write a
	// timestamp; after Close it is one of ours with the last value.
	refused atomic.Pointer[atomic.Uint32]

	mu      sync.Mutex
	mapped  *mappedWord
	program *ebpf.Program // the instance that runs; nil when closed
	current               // what belongs to it alone
	link    attachment    // nil while not attached
	mode    Mode          // of link
	buffer  []captureCounter
}

// attachment has the program on its interface: a bpf_link, or a place in a dispatcher.
type attachment interface {
	Update(*ebpf.Program) error
	Close() error
}

// newProgram takes what it needs out of the collection, the word and the namespace.
func newProgram(c Config, s table, spec *ebpf.CollectionSpec, collection *ebpf.Collection, refused *mappedWord, home namespace) (*Program, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load XDP program: count CPUs: %w", err), refused.close(), home.close())
	}
	p := &Program{
		config: c,
		maps: maps{
			sockets:  collection.DetachMap(captureMapXsks),
			counters: collection.DetachMap(captureMapCounters),
			rules:    collection.DetachMap(captureMapRules),
			status:   collection.DetachMap(statusMap),
		},
		mapped:  refused,
		home:    home,
		program: collection.DetachProgram(onlyProgram),
		current: newCurrent(s, spec, collection),
		buffer:  make([]captureCounter, cpus),
	}
	p.refused.Store(refused.word)
	return p, nil
}

// MetaRefused reports whether a packet was ever redirected without the
// timestamp that Config.Timestamps asks for. It is one load of a word that the
// XDP program sets before it redirects such a packet; once true it stays true.
func (p *Program) MetaRefused() bool { return p.refused.Load().Load() != 0 }

// Replace exchanges the filter; nil wants all packets. It is Select of that.
func (p *Program) Replace(expr *filter.Expr) error { return p.Select(Selection{Filter: expr}) }

// Select exchanges what says which packets are wanted. Packets meet either the old selection
// or the new one, and Counters go on; those of rules, and of the user's program, are the
// new one's and begin anew. On error the old one stays. Errors are those of [Load].
func (p *Program) Select(s Selection) error { return p.change(oneTable(s)) }

// change has the program decide by another table.
func (p *Program) change(s table) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.program == nil {
		return fmt.Errorf("replace the filter: %w", ErrClosed)
	}
	spec, err := p.prepare(&s)
	if err != nil {
		return fmt.Errorf("replace the filter: %w", err)
	}
	var collection *ebpf.Collection
	err = p.home.do(func() (err error) {
		collection, err = p.config.load(spec, &s.Selection, p.maps.replacements())
		return err
	})
	if err != nil {
		return fmt.Errorf("replace the filter: %w", err)
	}
	defer collection.Close()
	return p.exchange(collection.DetachProgram(onlyProgram), newCurrent(s, spec, collection))
}

// prepare returns the compiled program with another table, whose rules have numbers.
func (p *Program) prepare(s *table) (*ebpf.CollectionSpec, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := p.clearRules(s.number(&p.decides)); err != nil {
		return nil, err
	}
	return p.config.prepare(s)
}

// exchange puts program in the place of the one that runs, and owns it with what belongs to it.
func (p *Program) exchange(program *ebpf.Program, its current) error {
	if p.link != nil {
		if err := p.link.Update(program); err != nil {
			return errors.Join(fmt.Errorf("replace the filter: exchange the program on its interface: %w", err), program.Close(), its.close())
		}
	}
	old, was := p.program, p.current
	p.program, p.current = program, its
	return errors.Join(old.Close(), was.close())
}

// Close takes the program off its interface and gives everything back. A second
// call does nothing. No call of MetaRefused may be running; later ones are
// answered with the last value.
func (p *Program) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.program == nil {
		return nil
	}
	last := new(atomic.Uint32)
	last.Store(p.mapped.word.Load())
	p.refused.Store(last)
	err := errors.Join(p.detach(), p.program.Close(), p.mapped.close(), p.home.close(),
		p.maps.sockets.Close(), p.maps.counters.Close(), p.maps.rules.Close(), p.maps.status.Close(), p.current.close())
	p.config.Dispatcher.Close()
	p.program = nil
	return err
}

// detach takes the program off its interface, if it is on one.
func (p *Program) detach() error {
	if p.link == nil {
		return nil
	}
	err := p.link.Close()
	p.link = nil
	return err
}
