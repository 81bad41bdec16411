package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// softPrefix begins the name of a device that is a network interface, with RoCE v2 in software on it. Others are named as
// libibverbs names them.
const softPrefix = "roce:"

// soft is the interface of such a device, and whether the user names one.
func (o *options) soft() (iface string, is bool) { return strings.CutPrefix(o.device, softPrefix) }

// checkSoft holds the options to what RoCE in software can.
func (o *options) checkSoft() error {
	on, is := o.soft()
	switch {
	case !is && o.receive != 0:
		return fmt.Errorf("-receive goes with a device %sIFACE, not with %s", softPrefix, o.device)
	case o.receive < 0 || o.receive > mostReceive || o.receive&(o.receive-1) != 0:
		return fmt.Errorf("-receive %d: it must be a power of two up to %d", o.receive, mostReceive)
	case is && on != o.iface:
		return fmt.Errorf("RDMA_DEV %s: it is on the interface that is IFACE, which is %s: name %s%[2]s, or another IFACE", o.device, o.iface, softPrefix)
	case is && o.peer == rpingPeer:
		return fmt.Errorf("-peer %s: %w", o.peer, o.unmanaged())
	case is && o.Manager:
		return fmt.Errorf("-R: %w", o.unmanaged())
	}
	return nil
}

// mostReceive is roce.Config's.
const mostReceive = 1 << 16

var errUnmanaged = errors.New("rdma_cm is the kernel's, which knows nothing of RoCE in software")

func (o *options) unmanaged() error {
	return fmt.Errorf("%w: name a device of the kernel's instead of %s, or leave rdma_cm out", errUnmanaged, o.device)
}

// takes reports why a client's job cannot be done with the server's device and disk.
func (o *options) takes(j *job) error {
	if j.Test == storageTest && o.disk == noDisk {
		return errors.New("this server was started without a disk: name BLOCK_DEV there")
	}
	if _, is := o.soft(); is && j.Manager {
		return fmt.Errorf("the client wants -R: %w", o.unmanaged())
	}
	return nil
}

// openDevice opens the device that the user names.
func (s *session) openDevice() (err error) {
	open, name := verbs.Provider{}.Open, s.options.device
	if iface, is := s.options.soft(); is {
		p, err := roce.NewProvider(roce.Config{Region: s.region, Receive: s.options.receive})
		if err != nil {
			return err
		}
		open, name = p.Open, iface
	}
	if s.device, err = keep(s, open, name); err != nil {
		return err
	}
	if s.port, err = s.device.Port(1); err != nil {
		return err
	}
	s.progress, _ = s.device.(rdma.Progresser)
	s.before, err = s.readCounts()
	return err
}
