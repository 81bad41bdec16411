package device

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/xdp"
)

// openInterfaces are the interfaces that a daemon's flows take packets from. Several flows of one worker may have one: the first opens it,
// and others share it.
type Interfaces struct {
	mu  sync.Mutex // held while one is opened or closed
	all []*xdp.Interface
}

// leavingPatience is how long to wait for the last flow of an interface that is just giving it back.
const releaseTimeout = 10 * time.Second

// open opens an interface, or shares it with the flows that have it.
func (o *Interfaces) Open(x xdp.Config) (i *xdp.Interface, err error) {
	for end := time.Now().Add(releaseTimeout); ; time.Sleep(retryInterval) {
		i, err = o.try(x)
		if !errors.Is(err, xdp.ErrClosed) || time.Now().After(end) {
			return i, err
		}
	}
}

// retryPause is between two tries.
const retryInterval = 10 * time.Millisecond

func (o *Interfaces) try(x xdp.Config) (i *xdp.Interface, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := x.Interface
	if d, err := netdev.Find(name); err == nil { // it may be an alternative one
		name = d.Name
	}
	there := slices.IndexFunc(o.all, func(i *xdp.Interface) bool { return i.Name() == name })
	if there >= 0 {
		i, err = o.all[there].Share(x)
	} else {
		i, err = xdp.Open(x)
	}
	if err == nil {
		o.all = append(o.all, i)
	}
	return i, err
}

// close closes one, whose ports are closed. Who shared it goes on.
func (o *Interfaces) Close(i *xdp.Interface) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = slices.DeleteFunc(o.all, func(other *xdp.Interface) bool { return other == i })
	return i.Close()
}

// rank is where among the flows of a configuration one is asked whether it wants a packet.
func Rank(c *config.Config, flow string) int {
	return slices.IndexFunc(c.Flows, func(f config.Flow) bool { return f.Name == flow })
}

// slotBeside reports whether a flow of the configuration takes packets of an interface into the slot layout: then they land for all of
// its flows as that needs them.
func WantsInPlace(c *config.Config, iface string) bool {
	return slices.ContainsFunc(c.Flows, func(f config.Flow) bool {
		return f.To.Layout == config.LayoutSlot && f.From.Mirror == "" && slices.Contains(f.From.All(), iface)
	})
}
