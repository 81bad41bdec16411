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

// Interfaces are the interfaces from which a daemon's flows receive. Flows of one worker share an
// interface: the first opens it.
type Interfaces struct {
	mu  sync.Mutex // held while one is opened or closed
	all []*xdp.Interface
}

// releaseTimeout is how long to wait for an interface that its last flow is closing.
const releaseTimeout = 10 * time.Second

// Open opens an interface, or shares one that is open.
func (o *Interfaces) Open(x xdp.Config) (i *xdp.Interface, err error) {
	for end := time.Now().Add(releaseTimeout); ; time.Sleep(retryInterval) {
		i, err = o.try(x)
		if !errors.Is(err, xdp.ErrClosed) || time.Now().After(end) {
			return i, err
		}
	}
}

// retryInterval is the time between two attempts.
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

// Close closes an interface whose ports are closed. Flows that share it go on.
func (o *Interfaces) Close(i *xdp.Interface) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = slices.DeleteFunc(o.all, func(other *xdp.Interface) bool { return other == i })
	return i.Close()
}

// Rank is the position of a flow in its configuration. Flows that share an interface are asked in
// that order whether they want a packet.
func Rank(c *config.Config, flow string) int {
	return slices.IndexFunc(c.Flows, func(f config.Flow) bool { return f.Name == flow })
}

// WantsInPlace reports whether a flow of the configuration writes packets of an interface in place
// (layout: slot). The packets of all its flows then land with the headroom for that.
func WantsInPlace(c *config.Config, iface string) bool {
	return slices.ContainsFunc(c.Flows, func(f config.Flow) bool {
		return f.To.Layout == config.LayoutSlot && f.From.Mirror == "" && slices.Contains(f.From.All(), iface)
	})
}
