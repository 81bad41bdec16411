package doctor

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// zeroCopy reads the features of the driver, since Linux 6.3. On older kernels it tries zero copy.
func (c card) zeroCopy() Check {
	const name = "zero copy"
	features, err := xdpFeatures(c.Index)
	switch {
	case err != nil && c.bad == Fail:
		return c.tryZeroCopy()
	case err != nil:
		return unknown(name, "Linux 6.3 and later say; on this one it is tried on interfaces that are asked for")
	case features&xdpZeroCopy == 0:
		return c.withoutZeroCopy("the driver has none")
	case keepsMemory(c.bus):
		return c.withoutZeroCopy("the driver offers it, but this virtio device does not let it say which memory to use (VIRTIO_F_ACCESS_PLATFORM)")
	}
	return ok(name, "the driver offers it; whether it is granted shows when a flow starts")
}

// withoutZeroCopy returns the check of a card without zero copy, with the reason.
func (c card) withoutZeroCopy(why string) Check {
	const name = "zero copy"
	if c.hasFlow && c.flow.From.ZeroCopy == config.ZeroCopyRequire {
		return fail(name, "%s, and flow %s requires it", why, c.flow.Name).with("set zero_copy: prefer")
	}
	return warn(name, "%s: the kernel copies each packet into the region", why).
		with("%s, or live with one copy", c.instead("use a card whose driver has it"))
}

// tryZeroCopy binds a socket that only sends, without a program, and closes it. The drivers that
// had zero copy before 6.3 then prepare for it, and leave the rings as they are until there is a
// program (i40e_xsk_pool_enable and its like).
func (c card) tryZeroCopy() Check {
	const name = "zero copy"
	return onRegion(func(hands *umem.Holder) []Check {
		x, err := xdp.Open(xdp.Config{
			Interface: c.Name, Holder: hands, Queues: []uint32{0}, Direction: xdp.Send,
			NoProgram: true, Policy: xdp.Require, RingSize: 64, BindTimeout: 1,
		})
		switch {
		case errors.Is(err, xdp.ErrNoZeroCopy):
			return []Check{c.withoutZeroCopy(err.Error())}
		case err != nil:
			return []Check{unknown(name, "%v", err)}
		}
		if err := x.Close(); err != nil {
			return []Check{fail(name, "%v", err)}
		}
		return []Check{ok(name, "the driver grants it")}
	})[0]
}

// keepsMemory reports whether a PCI device is a virtio one whose driver may not choose
// memory for it, and so refuses zero copy (virtnet_xsk_pool_enable): feature 33 is not
// negotiated.
func keepsMemory(bus string) bool {
	const accessPlatform = 33
	files, _ := filepath.Glob(filepath.Join("/sys/bus/pci/devices", filepath.Base(bus), "virtio*/features"))
	if bus == "" || len(files) != 1 {
		return false
	}
	features, err := os.ReadFile(files[0])
	return err == nil && len(features) > accessPlatform && features[accessPlatform] == '0'
}
