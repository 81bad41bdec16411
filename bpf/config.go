package bpf

import (
	"fmt"
	"math"

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
	// Filter, Rules and Own are a [Selection]: which packets are wanted.
	Filter *filter.Expr
	Rules  []Rule
	Own    *Object
}

func (c Config) selection() Selection { return Selection{c.Filter, c.Rules, c.Own} }

func (c Config) check() error {
	if c.Queues < 1 || c.Queues > MaxQueues {
		return fmt.Errorf("load XDP program: %d queues: give a number from 1 to %d", c.Queues, MaxQueues)
	}
	if c.Device < 0 || c.Device > math.MaxInt32 || c.Device != 0 && !c.Timestamps {
		return fmt.Errorf("load XDP program: times of the card of interface %d: give the index of an interface, and ask for timestamps", c.Device)
	}
	s := c.selection()
	return s.check()
}
