package blocks

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// ClientConfig configures a Client. Fields without a default must be set.
type ClientConfig struct {
	Name     string           // for logs, errors and status
	Endpoint *stream.Endpoint // of the worker's region
	Worker   *umem.Holder     // holds the frames before and after a Read
	Address  string           // the server's, host:port
	Flow     string           // the flow there; empty: any
	Connect  connect.Config   // with certificates or without

	Window int // outstanding requests, if the server allows so many; default 32
	// Grants is the number of frames and extents that stay granted after the server has written to
	// them, because a grant takes time to make; default four times Window. All grants end with the
	// connection.
	Grants int
}

func (c *ClientConfig) setDefaults() error {
	if c.Endpoint == nil || c.Worker == nil || c.Worker.Book().Region() != c.Endpoint.Region {
		return errors.New("it needs an Endpoint, and a Worker of the same region")
	}
	if c.Window == 0 {
		c.Window = 32
	}
	if c.Window < 1 || c.Window > maxWindow {
		return fmt.Errorf("a Window of %d: 1 to %d are possible", c.Window, maxWindow)
	}
	if c.Grants == 0 {
		c.Grants = 4 * c.Window
	}
	c.Grants = max(c.Grants, c.Window)
	return nil
}

// grantRequests bounds the work requests for grants in flight.
const grantRequests = 64
