package client

import (
	"cmp"
	"log/slog"

	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/umem"
)

// Config configures a Client. The zero value of each field but Device selects a default.
type Config struct {
	// Device is the name of an RDMA device: "roce:IFACE" for RoCE in software on an interface, or a
	// name of libibverbs.
	Device string
	// Further are the names of further RDMA devices, for AppendConfig.Paths.
	Further []string
	// Memory is the size of the region in bytes; default 64 MiB. RoCE in software uses a part of it
	// that depends on Queue.
	Memory uint64
	// Pages is the kind of the region's pages; default umem.Auto: huge pages of 2 MiB, or ordinary ones where too few are
	// free, with a line in the log.
	Pages umem.PageSize
	// Reserve reserves missing huge pages, and Close gives them back: see umem.Allocate.
	Reserve bool
	// Extent is the size of the extents for messages that do not fit in a frame, a power of two in
	// bytes. Extents is their number; default none.
	Extent, Extents uint64
	// Class is the traffic class and priority of packets to daemons. A daemon's packets have those of its flow.
	Class stream.Class
	// Queue is the number of frames for receiving that RoCE in software keeps in each queue of its
	// interface, a power of two; default 2048.
	Queue int
	// Credentials make connections use TLS 1.3, with a certificate on both sides; nil: plain TCP.
	Credentials *connect.Credentials
	// Names finds flows that are named as NAME/FLOW, and states. An engine tells it where they are: package flows/cluster/etcd, or
	// [cluster.Names.SetStatic]. nil: both are named by their addresses only. Several clients may share it. The caller
	// closes the engine after the client.
	Names *cluster.Names
	// Spin makes the client's thread poll without sleeping: the lowest latency, at the cost of a
	// processor. If the program has only one processor, other goroutines get it every 4 ms while
	// messages move.
	Spin bool
	Log  *slog.Logger // default slog.Default()
}

// defaultMemory is enough for a queue of RoCE in software and some thousands of messages.
const defaultMemory = 64 << 20

// frameSize is the region's frame size. The longest message that fits in a frame is a little shorter.
const frameSize = 4096

func (c *Config) region() umem.Config {
	return umem.Config{Size: cmp.Or(c.Memory, defaultMemory), Pages: c.Pages, FrameSize: frameSize, ExtentSize: c.Extent, Extents: c.Extents}
}

func (c *Config) roce(r *umem.Region) roce.Config { return roce.Config{Region: r, Receive: c.Queue} }

func (c *Config) log() *slog.Logger { return cmp.Or(c.Log, slog.Default()) }
