package blocks

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// ClientConfig says whom to ask for blocks. Fields without a default must be set.
type ClientConfig struct {
	Name     string           // for people
	Endpoint *stream.Endpoint // of the worker's region
	Worker   *umem.Holder     // has the frames that are read into, before and after
	Address  string           // the server's, host:port
	Flow     string           // that it must serve; empty: any
	Connect  connect.Config   // with certificates or without

	Window int // requests at once, as far as the server takes so many; default 32
	// Grants is how many frames and extents the server's right to write to is kept for after it has done so, because it takes time to make; default four
	// times Window. The right ends when the connection does.
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

// grantRequests is how many work requests grants may have under way.
const grantRequests = 64
