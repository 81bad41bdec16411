package bpf

import (
	"errors"
	"fmt"
	"math"

	"github.com/unifiedd/unifiedd/bpf/dispatcher"
	"github.com/unifiedd/unifiedd/bpf/filter"
)

// MaxQueues bounds Config.Queues. No driver has more receive queues.
const MaxQueues = 4096

// Config says what [Load] loads. The zero value is not valid: Queues is needed.
type Config struct {
	// Queues is the number of receive queues of the interface, 1 to
	// [MaxQueues]. Packets of queues from there on are left to the kernel.
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
	// Device, where not 0, is the index of the interface whose driver the program
	// asks for the time of the card's own clock as well. The program can then be
	// attached to that interface only, and in driver mode only. Load must run on a
	// thread in the network namespace of the interface. Needs Timestamps and Linux 6.3.
	Device int
	// Dispatcher, where it is not nil, is that of libxdp on the interface that the program is for, and which it joins there beside the
	// programs of others. It belongs to the Program once that is loaded. Then Device must be 0, and where the dispatcher calls no
	// programs that change packets (those of libxdp did not before xdp-tools 1.5.5, and Linux keeps to it since 6.13) there are no
	// timestamps: MetaRefused says so from the first packet on.
	Dispatcher *dispatcher.Interface
	// Priority is the program's among those of the dispatcher: programs with lower ones run first.
	Priority uint32
	// Filter, Rules and Own are a [Selection]: which packets are wanted.
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
