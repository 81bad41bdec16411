package client

import (
	"cmp"
	"log/slog"

	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/umem"
)

// Config says what a client is made of. The zero value of each field but Device stands for a default.
type Config struct {
	// Device is an RDMA device's name: "roce:IFACE" for RoCE in software on an interface, or that of libibverbs.
	Device string
	// Memory is the region in bytes; default 64 MiB. What RoCE in software takes of it depends on Queue.
	Memory uint64
	// Pages is the kind of page the region is made of; default huge pages of 2 MiB.
	Pages umem.PageSize
	// Reserve has huge pages that are missing reserved, and given back by Close: see umem.Allocate.
	Reserve bool
	// Extent is the size of the pieces that messages longer than a frame take, a power of two in bytes, and Extents
	// how many there are; default none.
	Extent, Extents uint64
	// Queue is how many frames RoCE in software keeps in each queue of its interface for packets to arrive in, a
	// power of two; default 2048.
	Queue int
	// Credentials make connections TLS 1.3, both sides showing a certificate; nil: plain.
	Credentials *connect.Credentials
	// Spin has the client's thread never sleep: the least latency, for a processor of its own. Where it is the only one that the program may use, other
	// goroutines have it every 4 ms while messages move.
	Spin bool
	Log  *slog.Logger // default slog.Default()
}

// defaultMemory is enough for a queue of RoCE in software and some thousand messages.
const defaultMemory = 64 << 20

// frameSize is that of the region: the longest message that takes one frame is a little shorter.
const frameSize = 4096

func (c *Config) region() umem.Config {
	return umem.Config{Size: cmp.Or(c.Memory, defaultMemory), Pages: c.Pages, FrameSize: frameSize, ExtentSize: c.Extent, Extents: c.Extents}
}

func (c *Config) roce(r *umem.Region) roce.Config { return roce.Config{Region: r, Receive: c.Queue} }

func (c *Config) log() *slog.Logger { return cmp.Or(c.Log, slog.Default()) }
