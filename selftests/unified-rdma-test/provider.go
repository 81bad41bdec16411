package main

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/rdma/roce"
)

// soft returns the interface of a device of RoCE in software, and whether the user named such a device.
func (o *options) soft() (iface string, is bool) { return providers.Soft(o.device) }

// checkSoft checks the options against what RoCE in software supports.
func (o *options) checkSoft() error {
	on, is := o.soft()
	switch {
	case !is && o.receive != 0:
		return fmt.Errorf("-receive goes with a device %sIFACE, not with %s", providers.SoftPrefix, o.device)
	case o.receive < 0 || o.receive > mostReceive || o.receive&(o.receive-1) != 0:
		return fmt.Errorf("-receive %d: it must be a power of two up to %d", o.receive, mostReceive)
	case is && on != o.iface:
		return fmt.Errorf("RDMA_DEV %s: it is on the interface that is IFACE, which is %s: name %s%[2]s, or another IFACE", o.device, o.iface, providers.SoftPrefix)
	}
	return nil
}

// mostReceive is the limit of roce.Config.Receive.
const mostReceive = 1 << 16

// takes returns an error if the server's device or disk cannot do a client's job.
func (o *options) takes(j *job) error {
	if j.Test == storageTest && o.disk == noDisk {
		return errors.New("this server was started without a disk: name BLOCK_DEV there")
	}
	return nil
}

// softConfig returns the configuration of RoCE in software. A short receive ring gets a short send ring.
func (s *session) softConfig() roce.Config {
	c := roce.Config{Region: s.region, Receive: s.options.receive}
	if c.Receive > 0 {
		c.Send = min(512, max(8, c.Receive/4))
	}
	return c
}

// openDevice opens the device that the user named.
func (s *session) openDevice() (err error) {
	open := func(name string) (rdma.Device, error) {
		return providers.Open(name, s.softConfig())
	}
	if s.device, err = keep(s, open, s.options.device); err != nil {
		return err
	}
	if s.port, err = s.device.Port(1); err != nil {
		return err
	}
	s.progress, _ = s.device.(rdma.Progresser)
	s.before, err = s.readCounts()
	return err
}
