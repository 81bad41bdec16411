package labenv

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// FunctionForm is a virtual function of igb0, made by Functions, as end B. igb1 is end A. Its driver, igbvf, has
// neither XDP nor zero copy.
var FunctionForm = Form{Name: "igb VF", Copy: true, a: "igb1", b: "vf0", Queues: 1, mtu: 1500, drops: igbDrops, settles: igbSettles}

// physical is the device of the card whose virtual functions tests use: its physical function.
const physical = "/sys/class/net/igb0/device/"

// Function is a virtual function (VF) of igb0.
type Function struct {
	Number         int
	Name, Bus, MAC string // interface, PCI address and hardware address
}

// Functions makes igb0 have n VFs until the end of the test, on its own wire. Their interfaces are vf0, vf1 and so
// on. They are trusted, and may send from other addresses.
func Functions(t testing.TB, n int) []Function {
	t.Helper()
	Modules(t, "igbvf")
	SetLink(t, "igb0", true)
	t.Cleanup(func() {
		t.Helper()
		RemoveFunctions(t)
		SetLink(t, "igb0", false)
	})
	testenv.Wait(t, 20*time.Second, "igb0 to have a link", func() bool { return read("/sys/class/net/igb0/carrier") == "1" })
	// The driver of a VF reads its address when it starts.
	set(t, "sriov_drivers_autoprobe", "0")
	set(t, "sriov_numvfs", fmt.Sprint(n))
	all := make([]Function, n)
	for i := range all {
		all[i] = Function{Number: i, Name: fmt.Sprintf("vf%d", i), MAC: fmt.Sprintf("02:77:00:00:05:%02x", i)}
		Policy(t, i, "mac", all[i].MAC)
		Policy(t, i, "trust", "on")
		Policy(t, i, "spoofchk", "off")
	}
	set(t, "sriov_drivers_autoprobe", "1")
	for i := range all {
		all[i].probe(t)
	}
	return all
}

// RemoveFunctions takes all VFs away from igb0, as an administrator does while they are used.
func RemoveFunctions(t testing.TB) {
	t.Helper()
	set(t, "sriov_numvfs", "0")
}

// UnbindPhysical takes igb0 from its driver, and with it all VFs. back gives it back.
func UnbindPhysical(t testing.TB) (back func()) {
	t.Helper()
	to, err := os.Readlink(strings.TrimSuffix(physical, "/"))
	testenv.Must(t, err)
	bus := filepath.Base(to)
	link, err := netlink.LinkByName("igb0")
	testenv.Must(t, err)
	address := link.Attrs().HardwareAddr
	const driver = "/sys/bus/pci/drivers/igb/"
	testenv.Mustf(t, write(driver+"unbind", bus), "take igb0 (%s) from its driver", bus)
	return func() {
		t.Helper()
		testenv.Mustf(t, write(driver+"bind", bus), "give igb0 (%s) back to its driver", bus)
		testenv.Wait(t, 20*time.Second, "igb0 to be back", func() bool {
			links, _ := netlink.LinkList()
			for _, l := range links {
				if bytes.Equal(l.Attrs().HardwareAddr, address) {
					return l.Attrs().Name == "igb0" || netlink.LinkSetName(l, "igb0") == nil
				}
			}
			return false
		})
	}
}

// Policy changes a setting of a VF at its PF, as ip link set igb0 vf NUMBER does.
func Policy(t testing.TB, number int, setting ...string) {
	t.Helper()
	args := append([]string{"link", "set", "igb0", "vf", fmt.Sprint(number)}, setting...)
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}

func set(t testing.TB, file, text string) {
	t.Helper()
	testenv.Mustf(t, write(physical+file, text), "set %s of igb0 to %s", file, text)
}

// probe gives the VF to its driver, and its interface the name.
func (f *Function) probe(t testing.TB) {
	t.Helper()
	to, err := os.Readlink(fmt.Sprintf("%svirtfn%d", physical, f.Number))
	testenv.Must(t, err)
	f.Bus = filepath.Base(to)
	testenv.Mustf(t, write("/sys/bus/pci/drivers_probe", f.Bus), "give VF %d (%s) to its driver", f.Number, f.Bus)
	var link netlink.Link
	testenv.Wait(t, 20*time.Second, "the interface of VF "+f.Bus, func() bool {
		names, _ := filepath.Glob("/sys/bus/pci/devices/" + f.Bus + "/net/*")
		if len(names) != 1 {
			return false
		}
		link, err = netlink.LinkByName(filepath.Base(names[0]))
		return err == nil
	})
	testenv.Mustf(t, netlink.LinkSetName(link, f.Name), "name the interface of VF %s %s", f.Bus, f.Name)
}

// Move moves the interface of the VF from the namespace of the process into another one. When that is removed, the
// kernel moves it back.
func (f *Function) Move(t testing.TB, to *testenv.Namespace) {
	t.Helper()
	if out, err := exec.Command("ip", "link", "set", f.Name, "netns", to.Name).CombinedOutput(); err != nil {
		t.Fatalf("move %s into namespace %s: %v\n%s", f.Name, to.Name, err, out)
	}
}
