package cm

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// DeviceAddress is the device and the addresses of a connection.
type DeviceAddress struct {
	// Device is the RDMA device's name in /sys/class/infiniband. The queue pair must be made with it.
	Device        string
	Port          uint8 // of the device
	Local, Remote netip.AddrPort
}

func (p DeviceAddress) String() string {
	return fmt.Sprintf("%v to %v over %s port %d", p.Local, p.Remote, p.Device, p.Port)
}

const class = "/sys/class/infiniband"

// deviceOf finds a device by its GUID.
func deviceOf(guid [8]uint8) (string, error) {
	want := fmt.Sprintf("%x:%x:%x:%x", guid[0:2], guid[2:4], guid[4:6], guid[6:8])
	names, _ := filepath.Glob(class + "/*/node_guid")
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(b)) == want {
			return filepath.Base(filepath.Dir(name)), nil
		}
	}
	return "", fmt.Errorf("find the RDMA device with the GUID %s: %w", want, ErrDeviceGone)
}
