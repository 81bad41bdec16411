package bpf

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/unifiedd/unifiedd/bpf/dispatcher"
	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/osthread"
)

// Program is the XDP program in the kernel, with its maps, and its attachment
// to one interface once there is one.
type Program struct {
	config Config
	maps   maps
	home   osthread.Namespace // where Load ran, of a program that is bound to a device

	// refused is the word that the XDP program sets when it could not write a timestamp. After
	// Close it is a word of ours with the last value.
	refused atomic.Pointer[atomic.Uint32]

	mu      sync.Mutex
	mapped  *mappedWord
	program *ebpf.Program // the instance that runs; nil when closed
	current               // not shared with other instances
	link    attachment    // nil while not attached
	mode    Mode          // of link
	buffer  []captureCounter
}

// attachment keeps the program on its interface: a bpf_link, or a place in a dispatcher.
type attachment interface {
	Update(*ebpf.Program) error
	Close() error
}

// newProgram takes the program, the word and the namespace from the collection.
func newProgram(c Config, s table, spec *ebpf.CollectionSpec, collection *ebpf.Collection, refused *mappedWord, home osthread.Namespace) (*Program, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load XDP program: count CPUs: %w", err), refused.close(), home.Close())
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

// MetaRefused reports whether a packet was redirected without the timestamp that Config.Timestamps
// asks for. It is one load of a word that the XDP program sets before it redirects such a packet.
// Once true it stays true.
func (p *Program) MetaRefused() bool { return p.refused.Load().Load() != 0 }

// Replace replaces the filter; nil accepts all packets. It calls Select.
func (p *Program) Replace(expr *filter.Expr) error { return p.Select(Selection{Filter: expr}) }

// Select replaces the selection. Each packet meets either the old or the new one. The verdicts'
// counters continue. Counters of rules and of the user's program belong to the selection and start
// at zero. After an error the old selection stays. Errors are those of [Load].
func (p *Program) Select(s Selection) error { return p.change(oneTable(s)) }

// change makes the program use another table.
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
	err = p.home.Do(func() (err error) {
		collection, err = p.config.load(spec, &s.Selection, p.maps.replacements())
		return err
	})
	if err != nil {
		return fmt.Errorf("replace the filter: %w", err)
	}
	defer collection.Close()
	return p.exchange(collection.DetachProgram(onlyProgram), newCurrent(s, spec, collection))
}

// prepare returns the compiled program with another table, whose rules have their numbers.
func (p *Program) prepare(s *table) (*ebpf.CollectionSpec, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := p.clearRules(s.number(&p.decides)); err != nil {
		return nil, err
	}
	return p.config.prepare(s)
}

// exchange replaces the running program. It then owns program and its objects.
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

// Close takes the program off its interface and releases everything. A second call does nothing. No
// call of MetaRefused may be running; later calls return the last value.
func (p *Program) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.program == nil {
		return nil
	}
	last := new(atomic.Uint32)
	last.Store(p.mapped.word.Load())
	p.refused.Store(last)
	err := errors.Join(p.detach(), p.program.Close(), p.mapped.close(), p.home.Close(),
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

// MaxQueues bounds Config.Queues. No driver has more receive queues.
const MaxQueues = 4096

// Config says what [Load] loads. The zero value is not valid: Queues is needed.
type Config struct {
	// Queues is the number of receive queues of the interface, 1 to [MaxQueues]. The kernel
	// receives the packets of higher queues.
	Queues int
	// MultiBuffer lets the driver hand over packets that fill several of its
	// buffers. Many drivers refuse a program without it on an interface with a
	// large MTU; some have no driver mode with it.
	MultiBuffer bool
	// MaxLen is the longest packet the sockets can take, in bytes from the
	// Ethernet header on; longer ones are left to the kernel and counted as
	// [TooLong]. 0 is no limit.
	MaxLen uint32
	// Timestamps writes the time of arrival in front of each redirected packet.
	Timestamps bool
	// Device, if not 0, is the index of the interface whose driver the program also asks for the
	// time of the card's own clock. The program can then be attached to that interface only, and in
	// driver mode only. Load must run on a thread in the network namespace of the interface. Needs
	// Timestamps and Linux 6.3.
	Device int
	// Dispatcher is libxdp's dispatcher on the interface, or nil. The program joins it as one of
	// several. The Program owns the Dispatcher after Load. Device must then be 0. Some dispatchers
	// call no programs that change packets: those of xdp-tools before 1.5.5, and Linux enforces it
	// since 6.13. There the program writes no timestamps, and MetaRefused is true from the first
	// packet on.
	Dispatcher *dispatcher.Interface
	// Priority is the program's priority in the dispatcher: programs with lower ones run first.
	Priority uint32
	// Filter, Rules and Own are a [Selection]: the packets to accept.
	Filter *filter.Expr
	Rules  []Rule
	Own    *Object

	unstamped bool // the dispatcher takes no program that writes timestamps, so it is one that does not
}

func (c Config) selection() Selection { return Selection{c.Filter, c.Rules, c.Own} }

func (c Config) check() error {
	if c.Queues < 1 || c.Queues > MaxQueues {
		return fmt.Errorf("load XDP program: %d queues: give a number from 1 to %d", c.Queues, MaxQueues)
	}
	if c.Device < 0 || c.Device > math.MaxInt32 || c.Device != 0 && !c.Timestamps {
		return fmt.Errorf("load XDP program: times of the card of interface %d: give the index of an interface, and ask for timestamps", c.Device)
	}
	if c.Device != 0 && c.Dispatcher != nil {
		return errors.New("load XDP program: times of the card's clock: only a program that has the interface for itself can ask the card, and not one in a dispatcher")
	}
	s := c.selection()
	return s.check()
}

// current is the state that one instance of the program does not share with others.
type current struct {
	decides  table
	own      *ebpf.Map // the counters of the user's program; nil: it has none
	ownNames []string  // of those
}

// newCurrent takes its objects out of the collection.
func newCurrent(s table, spec *ebpf.CollectionSpec, collection *ebpf.Collection) current {
	c := current{decides: s}
	if counters := spec.Maps[ownPrefix+ownCounters]; counters != nil {
		c.own, c.ownNames = collection.DetachMap(ownPrefix+ownCounters), counterNames(counters)
	}
	return c
}

func (c *current) close() error { return c.own.Close() }

// SetSocketOf directs the packets of a seat on a receive queue to the AF_XDP socket fd, which must be
// bound to that queue. The kernel takes its own reference to the socket, and drops it when the socket
// is closed. The caller still owns fd.
func (p *Program) SetSocketOf(seat int, queue uint32, fd int) error {
	return p.onSockets(seat, queue, "give queue %d a socket: %w", func(sockets *ebpf.Map) error {
		return sockets.Update(p.place(seat, queue), uint32(fd), ebpf.UpdateAny)
	})
}

// ClearSocketOf leaves the packets of a seat on a receive queue to the kernel again. A queue without
// a socket stays as it is.
func (p *Program) ClearSocketOf(seat int, queue uint32) error {
	return p.onSockets(seat, queue, "take the socket of queue %d: %w", func(sockets *ebpf.Map) error {
		if err := sockets.Delete(p.place(seat, queue)); !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		return nil
	})
}

// onSockets runs f on the map of sockets; format takes the queue and the error.
func (p *Program) onSockets(seat int, queue uint32, format string, f func(*ebpf.Map) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.checkQueue(seat, queue)
	if err == nil {
		err = f(p.maps.sockets)
	}
	if err != nil {
		return fmt.Errorf(format, queue, err)
	}
	return nil
}

// place is the index of a queue's socket in the map of sockets.
func (p *Program) place(seat int, queue uint32) uint32 { return uint32(seat*p.config.Queues) + queue }

func (p *Program) checkQueue(seat int, queue uint32) error {
	if p.program == nil {
		return ErrClosed
	}
	if seat < 0 || seat >= Seats {
		return fmt.Errorf("the program has no seat %d", seat)
	}
	if uint64(queue) >= uint64(p.config.Queues) {
		return fmt.Errorf("the program was loaded for %d queues", p.config.Queues)
	}
	return nil
}
