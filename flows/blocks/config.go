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

// Config says what to serve. Fields without a default must be set.
type Config struct {
	Name     string           // for people
	Endpoint *stream.Endpoint // of the worker's region
	Worker   *umem.Holder     // whose book the server's frames are in; Close gives them to the pool
	Target   *nvme.Target     // what is served; stays the caller's, and outlives the server
	Flow     string           // what clients may ask for; they may also ask for nothing by name

	Clients  int    // at once; default 16
	Window   int    // requests of a client at once; default 32
	Transfer uint32 // bytes of the longest request; default 1 MiB
	Cache    uint64 // bytes of the region that keep what was read, beyond what is needed anyway; default none
	Depth    int    // reads at the disk at once; default 64

	// Permit says what of the target a client may read, or why nothing; nil: everybody everything. It is called by
	// several goroutines.
	Permit func(peer connect.Peer, h protocol.Hello) (Range, error)
	// AllowAnyGID lets clients have their queue pairs at other addresses than they connect from.
	AllowAnyGID bool
	// Events has FDs tell when Poll has something to do.
	Events bool
	Log    *slog.Logger // default: none
}

// Range is a part of what is served, in bytes. A Length of 0 is everything from Offset on.
type Range struct{ Offset, Length uint64 }

// contains reports whether n bytes from an offset are in the range; they end before 2^64.
func (r Range) contains(offset, n uint64) bool {
	return offset >= r.Offset && (r.Length == 0 || n <= r.Length && offset-r.Offset <= r.Length-n)
}

const (
	maxClients = 1 << 10
	maxWindow  = 1 << 10
	// keptFrames is the most frames that a request is served from where what was read is kept: beyond, each
	// byte costs less in extents.
	keptFrames = 16
	// sharedExtents are those that belong to no client.
	sharedExtents = 32
)

// complete reports what an opened server cannot do without.
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

// Needs says how many frames and extents of a region's pool a server with the configuration takes: what its clients are sure of, what they share,
// and the cache, half of which is frames and half extents where it needs both. Endpoint and Worker may be missing. An error says what about the configuration cannot be.
func Needs(c Config, r *umem.Region) (frames, extents int64, err error) {
	if err := c.setDefaults(); err != nil {
		return 0, 0, err
	}
	p, err := newPlan(c, r)
	if err != nil {
		return 0, 0, err
	}
	return int64(p.caches[frameCache].buffers + p.controlFrames()), int64(p.caches[extentCache].buffers), nil
}
