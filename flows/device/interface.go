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
// interface. The first flow opens it.
type Interfaces struct {
	mu  sync.Mutex // held while an interface is opened or closed
	all []*xdp.Interface
}

// releaseTimeout is how long Open waits for an interface that its last flow is closing.
const releaseTimeout = 10 * time.Second

// Open opens an interface, or shares an open one.
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
	if d, err := netdev.Find(name); err == nil { // the name may be an alternative name
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

// Close closes an interface whose ports are closed. Flows that share the interface continue.
func (o *Interfaces) Close(i *xdp.Interface) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = slices.DeleteFunc(o.all, func(other *xdp.Interface) bool { return other == i })
	return i.Close()
}

// Rank returns the position of a flow in its configuration. It is the order in which the XDP
// program asks flows that share an interface whether they take a packet.
func Rank(c *config.Config, flow string) int {
	return slices.IndexFunc(c.Flows, func(f config.Flow) bool { return f.Name == flow })
}

// WantsInPlace reports whether a flow of the configuration writes packets of an interface in place
// (layout: slot). All flows of the interface then receive packets with the headroom for that.
func WantsInPlace(c *config.Config, iface string) bool {
	return slices.ContainsFunc(c.Flows, func(f config.Flow) bool {
		return f.To.Layout == config.LayoutSlot && f.From.Mirror == "" && slices.Contains(f.From.All(), iface)
	})
}
