package flows

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/source/afxdp"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/xdp"
)

// TestCannotStart: a flow with impossible settings does not start. Each message names the flow, the cause and
// the remedy, and nothing stays behind.
func TestCannotStart(t *testing.T) {
	mounted := mountedDevice(t)
	system, capture := testenv.Zram(t, 16<<20), testenv.Zram(t, 16<<20)
	mkfs(t, system)
	putCapture(t, capture)
	c := newClinic(t, "", toFile)
	dir := c.dir
	shut := filepath.Join(dir, "shut")
	testenv.Must(t, os.Mkdir(shut, 0o700))
	shutDir(t, shut)
	file := filepath.Join(dir, "file")
	testenv.Must(t, os.WriteFile(file, nil, 0o600))
	for _, one := range []struct {
		name, from, to string
		want           error
		says           []string
	}{
		{"missing directory", "", "file: " + dir + "/none/ill", os.ErrNotExist, []string{dir + "/none", "create the directory"}},
		{"file as directory", "", "file: " + file + "/ill", unix.ENOTDIR, []string{file}},
		{"no permission", "", "file: " + shut + "/ill", os.ErrPermission, []string{shut, "not permitted"}},
		{"device that is a file", "", "device: " + dir, nil, []string{dir, "neither a file nor a block device"}},
		{"missing device", "", "device: /dev/none", os.ErrNotExist, []string{"/dev/none"}},
		{"mounted device", "", "device: " + mounted, nvme.ErrDeviceInUse, []string{mounted, "mounted", "unmount"}},
		{"device with a file system", "", "device: " + system, nvme.ErrDeviceNotEmpty, []string{system, "ext4", "force"}},
		{"device with a capture", "", "device: " + capture, nvme.ErrDeviceNotEmpty, []string{capture, "capture", "force: true"}},
		{"filter too large", ", filter: '" + strings.Repeat("not ", filter.MaxDepth+2) + "tcp'", toFile, filter.ErrTooLarge, []string{"filter"}},
		{"too many queues", ", queues: [0, 5]", toFile, nil, []string{"queue 5"}},
		{"zero copy required", ", zero_copy: require", toFile, xdp.ErrNoZeroCopy, []string{"zero copy"}},
	} {
		if one.want == xdp.ErrNoZeroCopy && granted.offered {
			continue
		}
		t.Run(one.name, func(t *testing.T) {
			c.prescribe(t, one.from, one.to)
			err := c.try(t)
			if err == nil || one.want != nil && !errors.Is(err, one.want) {
				t.Fatalf("start: %v", err)
			}
			testenv.MessageNames(t, err.Error(), append(one.says, "start flow ill"))
			if s := c.ill.Status(); s.State != status.Failed || s.Error != err.Error() {
				t.Errorf("%s: %s", s.State, s.Error)
			}
			free(t, c.B.Namespace, c.B.Ifname)
		})
	}
	for _, dev := range []string{system, capture} {
		c.prescribe(t, "", "force: true, segment: {size: 4MiB}, flush: 20ms, device: "+dev)
		c.sent = 0
		c.start(t)
		c.capture(t, 100)
		testenv.Check(t, c.ill.Stop())
		inSequence(t, captures.Packets(t, captures.ExportRing(t, dev)), 0, 100)
	}
}

// shutDir makes a directory immutable, so that even root cannot write to it.
func shutDir(t *testing.T, dir string) {
	t.Helper()
	const immutable = 0x10 // FS_IMMUTABLE_FL, linux/fs.h
	f, err := os.Open(dir)
	testenv.Must(t, err)
	t.Cleanup(func() {
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0); err != nil {
			t.Errorf("make %s writable again: %v", dir, err)
		}
		f.Close()
	})
	testenv.Must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, immutable))
}

// mountedDevice returns a device whose file system is mounted.
func mountedDevice(t *testing.T) string {
	t.Helper()
	dir := testenv.Ext4(t, 2<<20)
	text, err := os.ReadFile("/proc/self/mounts")
	testenv.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == dir {
			return f[0]
		}
	}
	t.Fatalf("%s is not mounted", dir)
	return ""
}

func mkfs(t *testing.T, dev string) {
	t.Helper()
	testenv.NewNamespace(t).Run(t, testenv.Tool(t, "mkfs.ext4"), "-q", "-F", dev)
}

// putCapture puts the head of a capture on a device.
func putCapture(t *testing.T, dev string) {
	t.Helper()
	head, err := pcapng.AppendSegmentHead(nil, pcapng.Section{}, []pcapng.Interface{{Name: "a", LinkType: 1}}, pcapng.Segment{Align: 4096})
	testenv.Must(t, err)
	testenv.Must(t, testenv.WriteSync(dev, head, 0))
}

// TestHugePagesExhausted asks for more huge pages than any machine has.
func TestHugePagesExhausted(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	c, err := config.Parse("test.yaml", []byte("region: {size: 4TiB}\nflows: [{name: a, from: {interface: lo}, to: {file: /a/b}}]"), config.Options{})
	testenv.Must(t, err)
	d, err := Open(c, Options{})
	if err == nil {
		d.Close()
		t.Fatal("4 TiB of huge pages were found")
	}
	testenv.MessageNames(t, err.Error(), []string{"huge pages", "nr_hugepages"})
}

// TestDefaultRoute: a flow refuses to take all packets from the interface that carries the host's default
// route, unless take_over is set.
func TestDefaultRoute(t *testing.T) {
	for _, one := range []struct {
		name, from string
		ok         bool
	}{{"everything", "", false}, {"filter", ", filter: udp port 5000", true}, {"told to", ", take_over: true", true}} {
		t.Run(one.name, func(t *testing.T) {
			c := newClinic(t, one.from, toFile)
			c.B.Run(t, "ip", "addr", "add", "10.77.0.2/24", "dev", c.B.Ifname)
			c.B.Run(t, "ip", "route", "add", "default", "via", "10.77.0.1")
			err := c.try(t)
			if one.ok {
				testenv.Must(t, err)
				c.capture(t, 10)
				return
			}
			if !errors.Is(err, afxdp.ErrTakeOver) {
				t.Fatalf("start: %v", err)
			}
			testenv.MessageNames(t, err.Error(), []string{"start flow ill", c.B.Ifname, "default route", "filter", "take_over: true"})
		})
	}
}

// TestLongFilter: a filter may be longer than the head of a capture can record.
func TestLongFilter(t *testing.T) {
	hosts := []string{"udp port 5000"}
	for i := range 300 {
		hosts = append(hosts, fmt.Sprintf("(host 10.%d.%d.1 and port %d)", i>>8, i&255, i+1))
	}
	c := newClinic(t, ", filter: '"+strings.Join(hosts, " or ")+"'", toFile)
	c.start(t)
	c.capture(t, 100)
	testenv.Must(t, c.ill.Stop())
	inSequence(t, c.illFiles(t), 0, 100)
}
