package doctor

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// of finds a check in a report.
func of(t *testing.T, r *Report, subject, name string) Check {
	t.Helper()
	for _, s := range r.Sections {
		for _, c := range s.Checks {
			if s.Subject == subject && c.Name == name {
				return c
			}
		}
	}
	t.Fatalf("there is no check %q of %q in %+v", name, subject, r)
	return Check{}
}

// TestMachine: the doctor finds everything possible that the other tests of this repository do on
// this machine, and it leaves nothing behind.
func TestMachine(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	before := loopbackLink(t)
	r := Examine(Options{})
	for _, name := range []string{"AF_XDP", "AF_XDP multi-buffer", "XDP program", "bpf_link for XDP", "io_uring"} {
		expect(t, name, of(t, r, "kernel", name), OK, "")
	}
	expect(t, "capabilities", of(t, r, "rights", "capabilities"), OK, "")
	for _, s := range r.Sections {
		for _, c := range s.Checks {
			if c.Name == "" || c.Detail == "" || c.State == Fail && c.Remedy == "" {
				t.Errorf("%s: incomplete check %+v", s.Subject, c)
			}
			if strings.Contains(c.Remedy, "%!") || strings.Contains(c.Detail, "%!") {
				t.Errorf("%s: badly formatted check %+v", s.Subject, c)
			}
		}
		if s.Subject == "interface lo" {
			t.Error("loopback is examined, and nobody asked for it")
		}
	}
	if after := loopbackLink(t); before != after {
		t.Errorf("the loopback interface was %q and is %q", before, after)
	}
}

// loopbackLink returns the state of this machine's loopback interface.
func loopbackLink(t *testing.T) string {
	t.Helper()
	l, err := netlink.LinkByIndex(loopback)
	testenv.Must(t, err)
	state := l.Attrs().Flags.String()
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		state += " with an XDP program"
	}
	return state
}

// onPair examines end A of a veth pair, from its namespace.
func onPair(t *testing.T, p *testenv.Pair, o Options) (r *Report) {
	t.Helper()
	if o.Config == nil {
		o.Interfaces = []string{p.A.Ifname}
	}
	p.A.Do(t, func() { r = Examine(o) })
	return r
}

func TestInterface(t *testing.T) {
	p := testenv.NewPair(t, testenv.PairOptions{Queues: 2})
	subject := "interface " + p.A.Ifname
	r := onPair(t, p, Options{})
	expect(t, "state", of(t, r, subject, "state"), OK, "driver veth, up")
	expect(t, "native XDP", of(t, r, subject, "native XDP"), OK, "in the driver")
	expect(t, "zero copy", of(t, r, subject, "zero copy"), Warn, "the kernel copies")
	expect(t, "queues", of(t, r, subject, "queues"), OK, "2 to receive, 2 to send")
	expect(t, "MTU", of(t, r, subject, "MTU"), OK, "1500")
	expect(t, "XDP program", of(t, r, subject, "XDP program"), OK, "none")
	expect(t, "default route", of(t, r, subject, "default route"), OK, "not over")
	expect(t, "VLAN tags", of(t, r, subject, "VLAN tags"), OK, "arrive")

	p.A.SetDown(t)
	expect(t, "down", of(t, onPair(t, p, Options{}), subject, "state"), Fail, "ip link set dev "+p.A.Ifname+" up")
	p.A.SetUp(t)
	p.B.SetDown(t)
	expect(t, "no carrier", of(t, onPair(t, p, Options{}), subject, "state"), Fail, "no carrier")
}

func TestInterfaceNobodyAskedFor(t *testing.T) {
	p := testenv.NewPair(t, testenv.PairOptions{})
	p.A.SetDown(t)
	var r *Report
	p.A.Do(t, func() { r = Examine(Options{}) })
	expect(t, "down", of(t, r, "interface "+p.A.Ifname, "state"), OK, "not requested")
}

func TestInterfaceAbsent(t *testing.T) {
	r := Examine(Options{Interfaces: []string{"none0"}})
	if r.State != Fail {
		t.Errorf("the report is %v", r.State)
	}
	expect(t, "absent", of(t, r, "interface none0", "interface"), Fail, "ip link")
}

func TestLongPackets(t *testing.T) {
	p := testenv.NewPair(t, testenv.PairOptions{MTU: 9000})
	r := onPair(t, p, Options{})
	expect(t, "MTU", of(t, r, "interface "+p.A.Ifname, "MTU"), Warn, "9000; packets above 3840 bytes")
}

// TestForeignProgram: the doctor names another XDP program on the interface.
func TestForeignProgram(t *testing.T) {
	p := testenv.NewPair(t, testenv.PairOptions{})
	program, err := bpf.Load(bpf.Config{Queues: 1})
	testenv.Must(t, err)
	defer program.Close()
	p.A.Do(t, func() {
		testenv.Must(t, program.Attach(p.A.Index, bpf.Driver))
	})
	c := of(t, onPair(t, p, Options{}), "interface "+p.A.Ifname, "XDP program")
	expect(t, "foreign", c, Fail, "unifiedd_")
	expect(t, "foreign", c, Fail, "ip link set dev "+p.A.Ifname+" xdpdrv off")
}

// TestFlow: the doctor reports each feature that a configuration requires and veth lacks.
func TestFlow(t *testing.T) {
	p := testenv.NewPair(t, testenv.PairOptions{})
	p.A.Do(t, func() { addDefaultRoute(t, p) })
	subject := "interface " + p.A.Ifname
	c := config.Default()
	c.Flows = []config.Flow{config.NewFlow("one")}
	f := &c.Flows[0]
	f.From.Interface, f.From.ZeroCopy, f.From.Queues = p.A.Ifname, config.ZeroCopyRequire, []int{0, 3}
	f.To.File, f.To.Layout = testenv.DiskDir(t)+"/sub/one", config.LayoutSlot
	r := onPair(t, p, Options{Config: c})
	expect(t, "zero copy", of(t, r, subject, "zero copy"), Fail, "zero_copy: prefer")
	expect(t, "queues", of(t, r, subject, "queues"), Fail, "no queue 3")
	expect(t, "default route", of(t, r, subject, "default route"), Fail, "take_over")
	expect(t, "MTU", of(t, r, subject, "MTU"), OK, "up to 3556 bytes")
	expect(t, "file system", of(t, r, "disk "+f.To.File, "file system"), Fail, "to.create: true")
	f.To.Create = true
	expect(t, "file system", of(t, onPair(t, p, Options{Config: c}), "disk "+f.To.File, "file system"), OK, "does not exist")
	f.To.Segment.Size, f.To.Segment.Keep.Bytes = config.GiB, 1<<60
	expect(t, "keep", of(t, onPair(t, p, Options{Config: c}), "disk "+f.To.File, "free space"), Warn, "lower segment.keep")

	f.From.Filter = "udp"
	expect(t, "filtered", of(t, onPair(t, p, Options{Config: c}), subject, "default route"), OK, "filter")
	f.From.Filter, f.From.TakeOver = "", true
	expect(t, "taken over", of(t, onPair(t, p, Options{Config: c}), subject, "default route"), Warn, "takes all")
}

func addDefaultRoute(t *testing.T, p *testenv.Pair) {
	t.Helper()
	route := &netlink.Route{LinkIndex: p.A.Index, Gw: net.IP(p.B.IP.AsSlice())}
	testenv.Must(t, netlink.RouteAdd(route))
}

func TestHugePages(t *testing.T) {
	testenv.HugePages(t, 8<<20)
	c := measured(func(c *config.Config) { c.Region.Size = 4 * config.MiB })
	expect(t, "reserved", hugePages(c, umem.Huge2M)[0], OK, "3 needed")
}

func TestDisks(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	file := testenv.DiskFile(t, 64<<20)
	zram := testenv.Zram(t, 16<<20)
	mounted := testenv.Ext4(t, 64<<20)
	loop := device(t, mounted)
	memory := "/dev/shm"
	r := Examine(Options{Interfaces: []string{"lo"}, Disks: []string{file, zram, mounted, loop, memory, "/dev/null"}})
	for _, test := range []struct {
		path, name string
		state      State
		text       string
	}{
		{file, "direct I/O", OK, "alignment"},
		{file, "free space", OK, "one segment takes 1024 MiB"},
		{zram, "device", OK, "16 MiB; " + zram[5:] + ": blocks of 4096 bytes"},
		{zram, "slot layout", OK, "not here"},
		{zram, "contents", OK, "empty"},
		{mounted, "file system", OK, "ext4 on " + loop},
		{mounted, "slot layout", OK, "possible"},
		{mounted, "free space", Warn, "less than one segment"},
		{loop, "contents", Fail, "mounted on " + mounted},
		{memory, "direct I/O", Fail, "a path on a disk"},
		{"/dev/null", "place", Fail, "neither"},
	} {
		expect(t, test.path, of(t, r, "disk "+test.path, test.name), test.state, test.text)
	}
	if left, _ := os.ReadDir(mounted); slices.ContainsFunc(left, func(e os.DirEntry) bool { return e.Name() != "lost+found" }) {
		t.Errorf("files are left in %s: %v", mounted, left)
	}
}

// device returns the block device of a directory.
func device(t *testing.T, dir string) string {
	t.Helper()
	m, found := mountOf(dir)
	if !found || m.point != dir {
		t.Fatalf("the mount of %s is %+v, %t", dir, m, found)
	}
	return m.source
}

func TestReadOnlyFileSystem(t *testing.T) {
	dir := testenv.Ext4(t, 16<<20)
	testenv.Must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	r := Examine(Options{Interfaces: []string{"lo"}, Disks: []string{dir}})
	expect(t, "read-only", of(t, r, "disk "+dir, "file system"), Fail, "mount -o remount,rw "+dir)
	expect(t, "read-only", of(t, r, "disk "+dir, "writable"), Fail, "read-only")
}
