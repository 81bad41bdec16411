package starter

import (
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/caps"
)

// setCapabilities gives the calling thread exactly these capabilities, permitted
// and effective; none is inheritable. The kernel reads two struct
// __user_cap_data_struct, one for each half (capset(2), version 3).
func setCapabilities(s caps.Set) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for half := range data {
		bits := uint32(uint64(s) >> (32 * half))
		data[half] = unix.CapUserData{Effective: bits, Permitted: bits}
	}
	return unix.Capset(&header, &data[0])
}
