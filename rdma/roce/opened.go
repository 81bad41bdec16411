package roce

import (
	"slices"
	"sync"
)

// opened are the devices that this process has open.
var opened struct {
	mu      sync.Mutex
	devices []*Device
}

// Opened lists the devices that this process has open, in the order in which they were opened: for counters, which may be
// read of each also when it is closed meanwhile. It may be called from any goroutine.
func Opened() []*Device {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	return slices.Clone(opened.devices)
}

// enlist has Opened list the device.
func (d *Device) enlist() {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	opened.devices = append(opened.devices, d)
}

// delist is the contrary, and does nothing of a device that is not listed.
func (d *Device) delist() {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	opened.devices = slices.DeleteFunc(opened.devices, func(o *Device) bool { return o == d })
}
