//go:build verbs && cgo

package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestPageOfNVMe: a host attaches the disk of the configuration in docs/how-to/nvme-of.md by the commands of the page, as they
// stand there, and reads what is on it.
func TestPageOfNVMe(t *testing.T) {
	labenv.Guest(t)
	page, _, _ := strings.Cut(string(read(t, "../../docs/how-to/nvme-of.md")), "\n## What the target does")
	text := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindStringSubmatch(page)
	commands := regexp.MustCompile(`(?m)^there\$ (.*)$`).FindAllStringSubmatch(page, -1)
	subsystem := regexp.MustCompile(`subsystem: (\S+)`).FindStringSubmatch(page)
	host := regexp.MustCompile(`hosts: \["(\S+)"\]`).FindStringSubmatch(page)
	if text == nil || len(commands) < 5 || subsystem == nil || host == nil {
		t.Fatalf("the page has the commands %q", commands)
	}
	content := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content) // it has no errors
	disk, err := os.OpenFile(labenv.Disk, os.O_WRONLY|os.O_SYNC, 0)
	testenv.Must(t, err)
	_, err = disk.Write(content)
	testenv.Must(t, err, disk.Close())

	wire := labenv.Wire{Card: "virtio0", Here: "10.0.0.1", There: "10.0.0.2"}
	testenv.HugePages(t, 66<<20)
	device := labenv.SoftRoCE(t, wire.Card, wire.Here+"/24")
	tool(t, "ip", "link", "property", "add", "dev", "virtio1", "altname", "eth1")
	tool(t, "ip", "address", "add", wire.There+"/24", "dev", "virtio1")
	t.Cleanup(func() {
		tool(t, "ip", "address", "del", wire.There+"/24", "dev", "virtio1")
		tool(t, "ip", "link", "property", "del", "dev", "virtio1", "altname", "eth1")
	})
	wire.Around(t)
	testenv.Must(t, os.MkdirAll("/etc/nvme", 0o755), os.WriteFile("/etc/nvme/hostnqn", []byte(host[1]+"\n"), 0o644)) // the guest's
	launchHosts(t, t.TempDir(), "region: {size: 64MiB, extent: 512KiB, extents: 24}\n"+strings.NewReplacer("mlx5_0", device, "/dev/nvme1n1", labenv.Disk).Replace(text[1]))
	t.Cleanup(func() {
		_ = exec.Command("nvme", "disconnect", "-n", subsystem[1]).Run() // it may not be connected
		_ = netlink.RdmaLinkDel("rxe0")                                  // it may not be there
	})
	said := ""
	for _, c := range commands {
		said = tool(t, "bash", "-c", c[1])
		if strings.Contains(c[1], "rxe0") {
			testenv.Wait(t, 10*time.Second, "the device to have its address", func() bool {
				gid, _ := os.ReadFile("/sys/class/infiniband/rxe0/ports/1/gids/1")
				return strings.Contains(string(gid), "0a00:0002")
			})
		}
	}
	path := hostDisk(t, subsystem[1])
	if !strings.Contains(said, path) {
		t.Errorf("nvme list does not have %s: %s", path, said)
	}
	got := []byte(tool(t, "dd", "if="+path, "bs=1M", "count=1", "iflag=direct", "status=none"))
	if !bytes.Equal(got, content) {
		t.Errorf("the host reads %d bytes, which are others", len(got))
	}
}
