package roce

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// Config says how devices are opened. The zero value of each field but Region stands for a default.
type Config struct {
	// Region is the memory of requests and packets. A device takes frames of its pool when it is opened: for each queue as
	// many as Receive says, and as many as Send says for headers.
	Region *umem.Region
	// Receive is how many frames each queue of the interface keeps with the kernel for packets to arrive in, a power of two.
	// A READ is answered in one burst, which must fit. Default 2048; drivers may need more.
	Receive int
	// Send is how many packets may be on their way to the card at once, with four parts each; default 512.
	Send int
	// Policy says whether the kernel may copy packets on their way.
	Policy xdp.Policy
	// CopyBelow is the payload in bytes below which a packet is sent in one piece, with a copy, and not gathered from where it lies:
	// each part costs the kernel or the card a little. Default 1024 where the kernel copies, 256 where it does not. Less than 0: nothing.
	CopyBelow int
	// QueuePairs is the most there can be at once; default 1024.
	QueuePairs int
	// Keys is the most registrations and memory windows together; default 4096.
	Keys int
	// Headroom is how many bytes stay free in front of each packet. Default 202: behind the kernel's 256 and the headers of an IPv4
	// SEND the payload lies at a multiple of 512, fit for direct I/O.
	Headroom *uint32
}

// defaultHeadroom puts the payload of a SEND over IPv4 without a VLAN tag at 512.
const defaultHeadroom = 202

func (c *Config) setDefaults() {
	if c.Receive == 0 {
		c.Receive = 2048
	}
	if c.Send == 0 {
		c.Send = 512
	}
	if c.QueuePairs == 0 {
		c.QueuePairs = 1024
	}
	if c.Keys == 0 {
		c.Keys = 4096
	}
	if c.Headroom == nil {
		c.Headroom = new(uint32)
		*c.Headroom = defaultHeadroom
	}
}

// Frames is how many frames a device takes of the region's pool, if its interface has so many receive queues and its driver has no needs of
// its own; those of queue pairs with loans come on top.
func (c Config) Frames(queues int) int64 {
	c.setDefaults()
	return int64(queues*c.Receive) + int64(c.Send) + loopbackFrames
}

// loopbackFrames is at least how many are for packets that a device sends to itself, at any MTU.
const loopbackFrames = 4 * batch

func (c *Config) check() error {
	switch {
	case c.Region == nil:
		return errors.New("it needs the region that devices are to register")
	case c.Receive < 64 || c.Receive > 1<<16 || bits.OnesCount(uint(c.Receive)) != 1:
		return fmt.Errorf("the number Receive is %d: it must be a power of two from 64 to 65536", c.Receive)
	case c.Send < 8 || c.Send > 1<<14 || bits.OnesCount(uint(c.Send)) != 1:
		return fmt.Errorf("the number Send is %d: it must be a power of two from 8 to 16384", c.Send)
	case c.QueuePairs < 1 || c.QueuePairs > 1<<16:
		return fmt.Errorf("the number QueuePairs is %d: it must be 1 to 65536", c.QueuePairs)
	}
	_, err := transport.NewKeys(c.Region.Size(), c.Keys)
	return err
}
