package verbs

import "github.com/unifiedd/unifiedd/rdma"

// Provider opens the devices of libibverbs. Its zero value is ready, and all its values are the
// same. It may be used from any goroutine.
type Provider struct{}

var _ rdma.Provider = Provider{}

// Name is "verbs".
func (Provider) Name() string { return "verbs" }

// Devices lists the names of the devices that libibverbs has a driver for, sorted. An empty list is
// no error; the error is ErrUnsupported if this build or this machine has no libibverbs.
func (Provider) Devices() ([]string, error) { return devices() }

// Open opens a device. The error for a missing one names the existing ones, or says how to make
// one.
func (Provider) Open(name string) (rdma.Device, error) { return open(name) }
