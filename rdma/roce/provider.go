package roce

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/network"
)

// Provider opens network interfaces as RDMA devices. It may be used from any goroutine.
type Provider struct{ config Config }

var _ rdma.Provider = (*Provider)(nil)

// NewProvider makes a provider whose devices register and use one region.
func NewProvider(c Config) (*Provider, error) {
	c.setDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("make the provider roce: %w", err)
	}
	return &Provider{c}, nil
}

// Name is "roce".
func (p *Provider) Name() string { return "roce" }

// Devices lists Ethernet interfaces in the caller's network namespace that are up and have an address, sorted.
func (p *Provider) Devices() ([]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	names := []string{}
	for _, i := range all {
		if usable(i) {
			names = append(names, i.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func usable(i net.Interface) bool {
	const need = net.FlagUp | net.FlagRunning
	if i.Flags&(need|net.FlagLoopback) != need || len(i.HardwareAddr) != 6 {
		return false
	}
	addrs, err := i.Addrs()
	return err == nil && len(addrs) > 0
}

// Open opens an interface, in the network namespace of the calling thread, with all of its queues. Packets of RoCE v2 are the device's from then on,
// and everything else stays the kernel's. The caller closes the device. It is a *Device.
func (p *Provider) Open(name string) (rdma.Device, error) {
	d, err := open(name, p.config)
	if errors.Is(err, network.ErrInterfaceGone) {
		names, _ := p.Devices()
		return nil, fmt.Errorf("%w; with an address and up are: %s", err, strings.Join(append(names, "no others"), ", "))
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}
