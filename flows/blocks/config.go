package blocks

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// Config configures a Server. Fields without a default must be set.
type Config struct {
	Name     string           // for logs, errors and status
	Endpoint *stream.Endpoint // of the worker's region
	Worker   *umem.Holder     // its book holds the server's frames; Close gives them back to the region
	Target   *nvme.Target     // the served target; the caller closes it after the server
	Flow     string           // the name that clients may request; they may also omit it

	Clients  int    // the largest number at a time; default 16
	Window   int    // outstanding requests of a client; default 32
	Transfer uint32 // bytes of the longest request; default 1 MiB
	Cache    uint64 // bytes of the region for caching, in addition to the necessary buffers; default none
	Depth    int    // outstanding reads of the disk; default 64
	// Index is a file in which Close notes what is cached, for the next server on the same memory. Nobody else
	// may have the file. default: none
	Index string

	// Permit returns the part of the target that a client may read, or an error that refuses the
	// client. nil: every client may read everything. Several goroutines call it.
	Permit func(peer connect.Peer, h protocol.Hello) (Range, error)
	// AllowAnyGID lets a client's queue pair have another address than its connection.
	AllowAnyGID bool
	// Events makes FDs poll readable when Poll has work.
	Events bool
	Log    *slog.Logger // default: none
}

// Range is a part of the target, in bytes. A Length of 0 means everything from Offset on.
type Range struct{ Offset, Length uint64 }

// contains reports whether n bytes from an offset are in the range. Their end must not exceed 2^64.
func (r Range) contains(offset, n uint64) bool {
	return offset >= r.Offset && (r.Length == 0 || n <= r.Length && offset-r.Offset <= r.Length-n)
}

const (
	maxClients = 1 << 10
	maxWindow  = 1 << 10
	// keptFrames bounds the frames of a request when data is cached: a longer request
	// costs less per byte in extents.
	keptFrames = 16
	// sharedExtents is the number of extents that are not reserved for a client.
	sharedExtents = 32
)

// complete checks that all required fields are set.
func (c *Config) complete() error {
	if c.Endpoint == nil || c.Worker == nil {
		return errors.New("it needs an Endpoint and a Worker")
	}
	if c.Worker.Book().Region() != c.Endpoint.Region {
		return errors.New("the Worker's region is not the Endpoint's")
	}
	return nil
}

func (c *Config) setDefaults() error {
	if c.Target == nil {
		return errors.New("it needs a Target")
	}
	for _, f := range []struct {
		name  string
		value *int
		usual int
		most  int
	}{{"Clients", &c.Clients, 16, maxClients}, {"Window", &c.Window, 32, maxWindow}, {"Depth", &c.Depth, 64, 4096}} {
		if *f.value == 0 {
			*f.value = f.usual
		}
		if *f.value < 1 || *f.value > f.most {
			return fmt.Errorf("%s is %d: 1 to %d are possible", f.name, *f.value, f.most)
		}
	}
	if c.Transfer == 0 {
		c.Transfer = 1 << 20
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
