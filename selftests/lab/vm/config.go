package vm

import (
	"fmt"
	"os"
	"slices"

	"github.com/unifiedd/unifiedd/selftests/lab/archive"
	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// Config selects the guest to boot.
type Config struct {
	Kernel   archive.Kernel
	Emulator archive.Emulator
	// Init is the first process, linked statically.
	Init []byte
	// Shares are directories of the host that commands must see, wherever they are. Commands
	// also see all other directories, except those below /tmp, /run and /dev.
	Shares []string
	// Nodes is how many NUMA nodes there are: 1 or 2. With two, the second card of
	// each kind and the NVMe disk are on the second.
	Nodes int
	// Append are more words for the kernel's command line.
	Append string
	// Record is a directory on the host, or empty. Its file disk is then a disk of the guest.
	// Its file log records all writes to the disk, with the flushes, in the format of the
	// kernel's dm-log-writes. The path must not contain a comma.
	Record string
	// Host numbers the guests of one link, from 1. Link is the guest's end of it, and
	// nil without one.
	Host int
	Link *os.File
	// Tap is a tap interface of the host without a header in front of its packets (IFF_NO_PI,
	// no IFF_VNET_HDR), or nil. The guest's card host0 is at its other end, with an MTU of
	// TapMTU bytes, which is also the longest packet that it accepts. The caller still owns
	// Tap.
	Tap    *os.File
	TapMTU int
}

const (
	// memoryMiB is less than 2816, from which on a part of the memory is above 4 GiB. The firmware then gives bridges
	// addresses there, and QEMU before 10.1.2 puts the registers of a card's virtual functions at the lower half of
	// their address, where no driver finds them (its commit 2e54e5fda779 mends that).
	memoryMiB = 2800
	// persistentMiB is the size of the module of persistent memory. The kernel gives it whole
	// pieces of 128 MiB.
	persistentMiB = 256
	processors    = 2
	hugePages     = 64 // of 2 MiB, there from the start
	diskBytes     = 8 << 30
	oddBytes      = 64 << 20 // of the disk with large blocks
	plainBytes    = 1 << 30  // of the disk beside it that is like the first
	linkNetwork   = "10.78.0.%d/24"
)

// oddAddress is the PCI address of the second NVMe controller.
const oddAddress = "0000:00:1e.0"

// modules has the modules that the guest needs; optional those that not every kernel has.
var (
	modules = []string{
		"virtio_pci", "virtio_console", "virtio_blk", "9pnet_virtio", "9p", "overlay", "ext4",
		"virtio_net", "igb", "nvme",
	}
	optional = []string{"crc32c_generic", "crc32_generic"}
)

// MAC addresses and names of the guest's cards. Two cards of a kind are on one wire.
var cards = []wire.Card{
	{MAC: "02:77:00:00:01:00", Name: "igb0"},
	{MAC: "02:77:00:00:01:01", Name: "igb1"},
	{MAC: "02:77:00:00:02:00", Name: "virtio0"},
	{MAC: "02:77:00:00:02:01", Name: "virtio1"},
}

// linkCard is the card that leads to the other guest.
func (c Config) linkCard() wire.Card {
	return wire.Card{
		MAC:     fmt.Sprintf("02:77:00:00:03:%02x", c.Host),
		Name:    "link0",
		Address: fmt.Sprintf(linkNetwork, c.Host),
	}
}

// tapCard is the card that leads to the host.
var tapCard = wire.Card{MAC: "02:77:00:00:04:00", Name: "host0"}

func (c Config) setup() wire.Setup {
	s := wire.Setup{KernelModules: c.Kernel.Modules, Shares: c.Shares, Cards: cards, Hostname: "lab", Unbound: []string{oddAddress}}
	if c.Link != nil {
		s.Hostname = fmt.Sprintf("lab%d", c.Host)
		s.Cards = append(slices.Clone(cards), c.linkCard())
	}
	if c.Tap != nil {
		s.Cards = append(slices.Clone(s.Cards), tapCard)
	}
	return s
}
