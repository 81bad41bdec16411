package labenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// DAX makes a device-DAX device of the guest's persistent memory, as ndctl does it: of the whole
// module, with the kernel's records of its pages in ordinary memory. It returns the device's path.
// The device stays for other tests.
func DAX(t testing.TB) (path string) {
	t.Helper()
	const device, namespace, bus = "/dev/dax0.0", "namespace0.0", "/sys/bus/nd/"
	if _, err := os.Stat(device); err == nil {
		return device
	}
	Modules(t, "nfit", "nd_pmem", "dax_pmem", "device_dax")
	testenv.Wait(t, 10*time.Second, "the persistent memory", func() bool { return exists(bus + "devices/" + namespace) })
	if exists(bus + "drivers/nd_pmem/" + namespace) {
		put(t, bus+"drivers/nd_pmem/unbind", namespace)
	}
	seed := strings.TrimSpace(read(bus + "devices/region0/dax_seed"))
	if seed == "" {
		t.Fatal("the persistent memory takes no device")
	}
	for _, one := range [][2]string{{"align", "2097152"}, {"uuid", "5f0e2f6c-9a54-4e0b-8f35-6f1a1c2d3e4f"}, {"mode", "ram"}, {"namespace", namespace}} {
		put(t, filepath.Join(bus, "devices", seed, one[0]), one[1])
	}
	put(t, bus+"drivers/dax_pmem/bind", seed)
	testenv.Wait(t, 10*time.Second, device, func() bool { return exists(device) })
	return device
}

// put writes a file of sysfs.
func put(t testing.TB, file, text string) {
	t.Helper()
	testenv.Mustf(t, write(file, text), "write %q", text)
}
