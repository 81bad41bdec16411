package labenv

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Namespace is an NVMe namespace: its block device and its node for commands.
type Namespace struct{ Disk, Node string }

// Odd has the namespaces of the second NVMe controller. Each has a property that disk code must
// handle specially.
type Odd struct {
	Small   Namespace // 3 MiB
	Blocks  Namespace // 64 MiB, in blocks of 4096 bytes
	Failing Namespace // 256 MiB of zeros; each write to it fails
	Plain   Namespace // 1 GiB, like the first disk: for tests that need two disks
}

// The second controller: its PCI address and its serial number.
const (
	oddAddress = "0000:00:1e.0"
	oddSerial  = "lab1"
	oddDevice  = "/sys/bus/pci/devices/" + oddAddress
)

// OddDisks binds the second NVMe controller to its driver. The end of the test unbinds it.
func OddDisks(t testing.TB) *Odd {
	t.Helper()
	Kernel(t)
	t.Cleanup(func() {
		t.Helper()
		err := errors.Join(write("/sys/bus/pci/drivers/nvme/unbind", oddAddress), write(oddDevice+"/driver_override", "none"))
		testenv.Checkf(t, err, "take the second NVMe controller from its driver")
	})
	err := errors.Join(write(oddDevice+"/driver_override", "\n"), write("/sys/bus/pci/drivers/nvme/bind", oddAddress))
	testenv.Mustf(t, err, "give the second NVMe controller to its driver")
	o := new(Odd)
	o.await(t)
	return o
}

// Unplug removes the controller, with all its disks, from the PCI bus.
func (o *Odd) Unplug(t testing.TB) {
	t.Helper()
	testenv.Mustf(t, write(oddDevice+"/remove", "1"), "take the second NVMe controller off its bus")
}

// Plug makes the kernel find the controller again. Its disks may have other names then.
func (o *Odd) Plug(t testing.TB) {
	t.Helper()
	testenv.Mustf(t, write("/sys/bus/pci/rescan", "1"), "have the bus looked over")
	o.await(t)
}

// await waits for the namespaces.
func (o *Odd) await(t testing.TB) {
	t.Helper()
	testenv.Wait(t, 10*time.Second, "the namespaces of the second NVMe controller", func() bool {
		found := namespaces(oddSerial)
		*o = Odd{Small: found["1"], Blocks: found["2"], Failing: found["3"], Plain: found["4"]}
		return len(found) == 4
	})
}

// namespaces returns the namespaces of the controller with that serial number, by namespace ID. The
// kernel names disks in the order in which it finds them, which varies.
func namespaces(serial string) map[string]Namespace {
	found := make(map[string]Namespace)
	dirs, _ := filepath.Glob("/sys/block/nvme*n*")
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if !diskName.MatchString(name) || read(dir+"/device/serial") != serial {
			continue
		}
		n := Namespace{"/dev/" + name, "/dev/ng" + strings.TrimPrefix(name, "nvme")}
		if exists(n.Disk) && exists(n.Node) {
			found[read(dir+"/nsid")] = n
		}
	}
	return found
}

// diskName matches the name of a namespace, but not the names of the paths to it.
var diskName = regexp.MustCompile(`^nvme\d+n\d+$`)

func read(file string) string {
	text, _ := os.ReadFile(file)
	return strings.TrimSpace(string(text))
}

func write(file, text string) error { return os.WriteFile(file, []byte(text), 0) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
