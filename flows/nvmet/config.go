package nvmet

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/nvme/fabrics/dhchap"
	"github.com/unifiedd/unifiedd/umem"
)

// Config configures a Server. Fields without a default must be set.
type Config struct {
	Name       string           // for logs, errors and status
	Endpoint   *stream.Endpoint // of the worker's region, which has extents
	Worker     *umem.Holder     // its book holds the server's frames; Close gives them back to the region
	Subsystems []Subsystem

	Sessions int    // the largest number of queue pairs of all hosts; default 32
	Queues   int    // the most I/O queues of one host; default 8
	Depth    int    // entries of a queue; default 128
	Capsule  uint32 // bytes of data in a capsule, at most a frame and a multiple of 16; 0: all data is fetched by READ
	Small    int    // frames for data; default 4 a session
	Large    int    // extents for data; default one and a half a session
	Disk     int    // outstanding reads and writes of the disks; default 128

	// FirstController and LastController are the lowest and the highest number of controllers; default
	// 1 and MaxController. They are at least as many as Sessions. Servers of one subsystem need
	// different ones: a host refuses a second controller with the same number.
	FirstController, LastController uint16

	// Reservations is a file for persistent reservations; empty: hosts cannot reserve namespaces. All
	// servers of a disk name the same file, which is on this machine.
	Reservations string

	// Events makes FDs poll readable when Poll has work.
	Events bool
	Log    *slog.Logger // default: none
}

// Subsystem is one subsystem.
type Subsystem struct {
	NQN    string
	Serial string // default: made of the NQN
	// Hosts are the NQNs that may connect. nil: all hosts with a key, or all hosts with AnyHost.
	// Without Hosts, Keys and AnyHost, Open fails.
	Hosts   []string
	AnyHost bool
	// Keys are the hosts' DH-HMAC-CHAP keys. Each queue authenticates, in Group; hosts without a
	// key may not connect. nil: no authentication. The discovery subsystem does not authenticate.
	Keys       map[string]dhchap.Keys
	Group      dhchap.Group
	Namespaces []Namespace
}

// Namespace is a disk as hosts see it.
type Namespace struct {
	ID       uint32       // from 1
	Disk     *nvme.Target // the caller closes it after the server
	ReadOnly bool
	ANA      fabrics.ANAState // how the server reaches it, 0: ANAOptimized; Change may change it alone
	UUID     [16]byte         // identifies it to hosts; must stay the same over restarts
	// Released is called on the server's thread when Change has removed the namespace and the Disk
	// is no longer in use. It must not block. It may be nil.
	Released func()
}

const (
	maxSeats = 1 << 10
	maxDepth = 1 << 10
	// MaxController is the highest number that a controller may have (CNTLID).
	MaxController = 0xffef
	// minTransfer is the smallest value that MDTS can express.
	minTransfer = 8192
)

func (c *Config) setDefaults() error {
	if c.Sessions == 0 {
		c.Sessions = 32
	}
	for _, f := range []struct {
		name  string
		value *int
		usual int
		least int
		most  int
	}{{"Seats", &c.Sessions, 32, 2, maxSeats}, {"Queues", &c.Queues, 8, 1, maxSeats}, {"Depth", &c.Depth, 128, fabrics.AdminDepth, maxDepth},
		{"Small", &c.Small, 4 * c.Sessions, c.Sessions + 1, 1 << 20}, {"Large", &c.Large, c.Sessions + c.Sessions/2, c.Sessions + 1, 1 << 20}, {"Disk", &c.Disk, 128, 1, 4096}} {
		if *f.value == 0 {
			*f.value = f.usual
		}
		if *f.value < f.least || *f.value > f.most {
			return fmt.Errorf("%s is %d: %d to %d are possible", f.name, *f.value, f.least, f.most)
		}
	}
	if c.FirstController == 0 && c.LastController == 0 {
		c.FirstController, c.LastController = 1, MaxController
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// check checks that all required fields are set.
func (c *Config) check() error {
	if c.Endpoint == nil || c.Worker == nil {
		return errors.New("it needs an Endpoint and a Worker")
	}
	r := c.Endpoint.Region
	switch {
	case c.Worker.Book().Region() != r:
		return errors.New("the Worker's region is not the Endpoint's")
	case len(c.Subsystems) == 0:
		return errors.New("it needs a subsystem")
	case c.Capsule > r.FrameSize() || c.Capsule%16 != 0:
		return fmt.Errorf("capsules with %d bytes of data: at most a frame of the region is possible, %d, in multiples of 16", c.Capsule, r.FrameSize())
	case c.FirstController == 0 || c.LastController > MaxController || int(c.LastController)-int(c.FirstController)+1 < c.Sessions:
		return fmt.Errorf("controllers %d to %d: the first is 1 at least, the last %d at most, and there are as many as sessions, %d", c.FirstController, c.LastController, MaxController, c.Sessions)
	case r.ExtentSize() < minTransfer:
		return fmt.Errorf("extents have %d bytes: at least %d are needed (region.extent)", r.ExtentSize(), minTransfer)
	}
	return c.checkSubsystems()
}

func (c *Config) checkSubsystems() error {
	seen := map[string]bool{fabrics.DiscoveryNQN: true}
	for _, s := range c.Subsystems {
		if !fabrics.ValidNQN(s.NQN) || seen[s.NQN] {
			return fmt.Errorf("subsystem %q: names begin with nqn., have at most 223 characters and no spaces, and are those of one subsystem alone", s.NQN)
		}
		seen[s.NQN] = true
		if s.Hosts == nil && s.Keys == nil && !s.AnyHost {
			return fmt.Errorf("subsystem %s: nothing says which hosts may connect (set Hosts, Keys or AnyHost)", s.NQN)
		}
		for _, h := range s.Hosts {
			if !fabrics.ValidNQN(h) {
				return fmt.Errorf("subsystem %s: host %q is no NQN", s.NQN, h)
			}
		}
		err := s.checkNamespaces()
		if err == nil {
			err = s.checkANA(c.Endpoint.Region.ExtentSize())
		}
		if err != nil {
			return fmt.Errorf("subsystem %s: %w", s.NQN, err)
		}
	}
	return nil
}

func (s *Subsystem) checkNamespaces() error {
	ids := make(map[uint32]bool)
	for _, n := range s.Namespaces {
		switch {
		case n.ID < 1 || n.ID > fabrics.MaxNamespace || ids[n.ID]:
			return fmt.Errorf("namespace %d: numbers are 1 to %d, each once", n.ID, fabrics.MaxNamespace)
		case n.Disk == nil:
			return fmt.Errorf("namespace %d has no disk", n.ID)
		case n.Disk.Size() < uint64(n.Disk.Alignment().Offset):
			return fmt.Errorf("namespace %d: %s is empty", n.ID, n.Disk.Path())
		case n.ANA > fabrics.ANAInaccessible:
			return fmt.Errorf("namespace %d: %d is no ANA state", n.ID, n.ANA)
		}
		ids[n.ID] = true
	}
	return nil
}

// checkANA refuses a state that no host would ask for.
func (s *Subsystem) checkANA(extent uint64) error {
	for _, n := range s.Namespaces {
		if n.ANA > fabrics.ANAOptimized && transfer(extent) < fabrics.ANALogLen {
			return fmt.Errorf("namespace %d: hosts read the ANA log page of %d bytes in one piece, and transfers have at most %d: open the region with larger extents (region.extent)", n.ID, fabrics.ANALogLen, transfer(extent))
		}
	}
	return nil
}

// transfer returns the longest transfer: the largest power of two that fits an extent.
func transfer(extent uint64) uint32 { return 1 << (bits.Len64(min(extent, 1<<20)) - 1) }
