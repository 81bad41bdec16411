//go:build verbs && cgo

package nvmet

import (
	"net"
	"testing"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/rdma/roce"
)

// host returns the address at which targets listen.
func (r *rig) host() string {
	host, _, err := net.SplitHostPort(r.listen)
	r.must(err)
	return host
}

// newRig makes a rig on a Soft-RoCE device.
func newRig(t *testing.T) *rig {
	t.Helper()
	testenv.Leaks(t)
	name := labenv.SoftRoCE(t, "virtio0", address+"/24")
	t.Cleanup(func() { labenv.RDMAAtRest(t, name, "cq") }) // the initiator keeps completion queues for reuse
	return newRigOn(t, name, address)
}

// newRigOn makes a rig on an RDMA device that has the given address.
func newRigOn(t *testing.T, name, at string) *rig {
	t.Helper()
	r := &rig{T: t, listen: at + ":4420"}
	r.openRegion(frames+extents<<20, extents)
	device, err := providers.Open(name, roce.Config{})
	r.must(err)
	t.Cleanup(func() { r.check(device.Close()) })
	r.endpoint, err = stream.OpenEndpoint(device, r.region)
	r.must(err)
	t.Cleanup(func() { r.check(r.endpoint.Close()) })
	r.manager, err = cm.Open()
	r.must(err)
	t.Cleanup(func() { r.check(r.manager.Close()) })
	return r
}

const frames, extents = 24 << 20, 32

// disk opens a disk of the guest.
func (r *rig) disk(size uint64) *nvme.Target {
	r.Helper()
	return r.opened(labenv.Map(r.T, size))
}

// opened opens a disk.
func (r *rig) opened(m *labenv.Mapped) *nvme.Target {
	r.Helper()
	d, err := nvme.OpenTarget(nvme.TargetConfig{Path: m.Path, Force: true})
	r.must(err)
	r.Cleanup(func() { r.check(d.Close()) })
	return d
}
