package doctor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
)

// expect compares a check's state, and searches for a text in its detail or remedy.
func expect(t *testing.T, what string, c Check, state State, text string) {
	t.Helper()
	if c.State != state || !strings.Contains(c.Detail+" -> "+c.Remedy, text) {
		t.Errorf("%s: %v %q -> %q, want %v with %q", what, c.State, c.Detail, c.Remedy, state, text)
	}
	if c.Name == "" || c.Detail == "" {
		t.Errorf("%s: a check without name or detail: %+v", what, c)
	}
}

func TestRelease(t *testing.T) {
	for text, want := range map[string]State{
		"6.1.0": OK, "6.18.44-fc": OK, "7.2.1": OK, "5.15.0-101-generic": Warn, "6.0.19": Warn, "strange": Unknown,
	} {
		expect(t, text, judgeRelease(text), want, text)
	}
}

func TestCapabilities(t *testing.T) {
	every := caps.Set(1<<41 - 1)
	for _, test := range []struct {
		have  caps.Set
		state State
		text  string
	}{
		{every, OK, "all"},
		{every.Minus(caps.SysResource), OK, "all but CAP_SYS_RESOURCE; missing: CAP_SYS_RESOURCE"},
		{must | useful, OK, "CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_SYS_RESOURCE, CAP_PERFMON, CAP_BPF"},
		{every.Minus(caps.BPF), OK, "missing: CAP_BPF"}, // CAP_SYS_ADMIN includes it
		{every.Minus(caps.BPF | caps.SysAdmin), Fail, "missing: CAP_BPF"},
		{caps.NetRaw | caps.BPF, Fail, "missing: CAP_NET_ADMIN, CAP_IPC_LOCK, CAP_SYS_RESOURCE, CAP_PERFMON"},
		{0, Fail, "setcap cap_net_admin,cap_net_raw,cap_ipc_lock,cap_perfmon,cap_bpf+ep"},
	} {
		expect(t, test.have.String(), capabilities(test.have, every), test.state, test.text)
	}
}

func TestUserNamespace(t *testing.T) {
	expect(t, "first", userNamespace("0          0 4294967295"), OK, "the machine's own")
	expect(t, "mapped", userNamespace("0     100000      65536"), Warn, "not the machine's own")
	expect(t, "one user", userNamespace("0 1000 1"), Warn, "--userns=host")
	expect(t, "none", userNamespace(""), Unknown, "uid_map")
}

// measured returns the needs of a configuration.
func measured(change func(*config.Config)) needs {
	c := config.Default()
	c.Flows = []config.Flow{config.NewFlow("one")}
	c.Flows[0].From.Interface, c.Flows[0].To.File = "eth0", "/data/one"
	if change != nil {
		change(c)
	}
	return newNeeds(Options{Config: c})
}

func TestPagesFrom(t *testing.T) {
	on1, on := measured(func(c *config.Config) { c.Region.Node = new(int); *c.Region.Node = 1 }), measured(nil)
	giant := measured(func(c *config.Config) { c.Region.Pages, c.Region.Size = config.Pages1GiB, 3*config.GiB })
	plain := measured(func(c *config.Config) { c.Region.Pages = config.PagesOrdinary })
	for _, test := range []struct {
		what string
		n    needs
		size umem.PageSize
		node int
		want uint64
	}{
		{"machine", on, umem.Huge2M, -1, 129},
		{"any node", on, umem.Huge2M, 0, 0},
		{"its node", on1, umem.Huge2M, 1, 129},
		{"other node", on1, umem.Huge2M, 0, 0},
		{"giant", giant, umem.Huge1G, -1, 3},
		{"control beside giant", giant, umem.Huge2M, -1, 1},
		{"ordinary", plain, umem.Huge2M, -1, 0},
	} {
		if got := test.n.pagesFrom(test.size, test.node); got != test.want {
			t.Errorf("%s: %d pages, want %d", test.what, got, test.want)
		}
	}
}

func TestHugePagePool(t *testing.T) {
	configured := measured(func(c *config.Config) { c.Region.Pages, c.Region.Reserve = config.Pages2MiB, false })
	defaults := newNeeds(Options{})
	reserving := measured(func(c *config.Config) { c.Region.Pages = config.Pages2MiB })
	unit, strict := measured(nil), measured(func(c *config.Config) { c.Region.Pages = config.Pages2MiB })
	unit.starter, strict.starter = "unifiedd", "unifiedd"
	defaults.starter, reserving.starter = "", ""
	const plenty, little = 64 << 30, 64 << 20
	for _, test := range []struct {
		what        string
		n           needs
		free, total uint64
		available   uint64
		state       State
		text        string
	}{
		{"enough", configured, 129, 200, plenty, OK, "129 free of 200, 129 needed"},
		{"too few", configured, 100, 200, plenty, Fail, "echo vm.nr_hugepages=229 > /etc/sysctl.d/50-unifiedd.conf && sysctl -p /etc/sysctl.d/50-unifiedd.conf"},
		{"too few for the defaults", defaults, 100, 200, plenty, OK, "29 are reserved at the start"},
		{"too few for the defaults of nothing", defaults, 0, 0, little, Warn, "ordinary pages"},
		{"not by the unit's user", unit, 100, 200, plenty, Warn, "user unifiedd, who starts the daemon, may not reserve 29: the region is on ordinary pages"},
		{"not by the unit's user, and needed", strict, 100, 200, plenty, Fail, "vm.nr_hugepages=229"},
		{"to be reserved", reserving, 100, 200, plenty, OK, "29 are reserved at the start"},
		{"to be reserved from nothing", reserving, 0, 0, little, Fail, "only 64 MiB of memory are available"},
	} {
		p := pool{size: umem.Huge2M, node: -1, free: test.free, total: test.total}
		expect(t, test.what, p.judge(test.n, test.available), test.state, test.text)
	}
	p, without := pool{size: umem.Huge2M, node: -1}, errors.New("built without CONFIG_HUGETLBFS")
	expect(t, "no kernel for them", p.none(unit, without), Warn, "CONFIG_HUGETLBFS: the region is on ordinary pages")
	expect(t, "no kernel for them, and needed", p.none(strict, without), Fail, "CONFIG_HUGETLBFS")
}

func TestLockedMemory(t *testing.T) {
	const need = 2 * 256 << 20
	expect(t, "capable", judgeLocked(measured(nil), 8<<20, caps.IPCLock), OK, "limit 8 MiB, which CAP_IPC_LOCK lifts")
	expect(t, "unlimited", judgeLocked(measured(nil), unix.RLIM_INFINITY, 0), OK, "limit unlimited")
	expect(t, "just enough", judgeLocked(measured(nil), need, 0), OK, "limit 512 MiB, 512 MiB needed")
	expect(t, "a byte short", judgeLocked(measured(nil), need-1, 0), Fail, "LimitMEMLOCK=512M (ulimit -l 524288)")
	expect(t, "defaults", judgeLocked(newNeeds(Options{}), 64<<10, caps.NetRaw), Warn, "limit 64 KiB")
}

func TestGoThreads(t *testing.T) {
	expect(t, "few", goThreads(2, 1), OK, "the daemon raises to 3")
	expect(t, "enough", goThreads(3, 1), OK, "at least 3")
}

func TestSpinning(t *testing.T) {
	calm, busy := config.NewWorker("calm"), config.NewWorker("busy")
	busy.Wait = config.WaitSpin
	expect(t, "none", spinning(1, []config.Worker{calm}), OK, "0 for 1")
	expect(t, "one of two", spinning(2, []config.Worker{calm, busy}), OK, "1 for 2")
	expect(t, "all", spinning(2, []config.Worker{busy, busy}), Warn, "2 for 2")
}

func TestPinned(t *testing.T) {
	w := config.NewWorker("w")
	w.CPU = new(int)
	expect(t, "allowed", pinned(w, []int{0, 1}, nil), OK, "CPU 0")
	expect(t, "isolated", pinned(w, []int{0, 1}, []int{0}), OK, "isolated")
	expect(t, "forbidden", pinned(w, []int{1, 2, 3}, nil), Fail, "it may use 1-3")
	*w.CPU = 8000
	expect(t, "absent", pinned(w, []int{0}, nil), Fail, "CPU 8000 is not online")
}

func TestLists(t *testing.T) {
	for text, want := range map[string]string{"": "", "0": "0", "0-3,8": "0-3,8", "1,2,3,5": "1-3,5", "x,2": "2", "0-99999999": ""} {
		if got := ranges(parseList(text)); got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	}
}

func TestMounts(t *testing.T) {
	m, good := parseMount(`36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root ro,errors=continue`)
	want := mount{device: unix.Mkdev(98, 0), point: "/mnt 2", kind: "ext3", source: "/dev/root", readOnly: true}
	if !good || m != want {
		t.Errorf("parseMount: %+v, %t, want %+v", m, good, want)
	}
	for _, bad := range []string{"", "36 35 98:0 / /x rw", "a b c d e f - g h i", "1 2 3:4 / - ext4 x rw"} {
		if m, good := parseMount(bad); good {
			t.Errorf("%q is taken for %+v", bad, m)
		}
	}
	if !under("/a/b", "/a") || under("/ab", "/a") || !under("/ab", "/") {
		t.Error("under is wrong")
	}
}

func TestAlignment(t *testing.T) {
	slot := place{flow: config.NewFlow("one"), hasFlow: true}
	slot.flow.To.Layout = config.LayoutSlot
	last := func(p place, memory, offset uint32) Check {
		checks := p.aligned(nvme.Alignment{Memory: memory, Offset: offset})
		return checks[len(checks)-1]
	}
	expect(t, "fine", last(slot, 4, 512), OK, "possible")
	expect(t, "coarse", last(slot, 512, 4096), Fail, "layout: packed")
	expect(t, "coarse, unwanted", last(place{}, 512, 4096), OK, "not here")
}

func TestRingRemedy(t *testing.T) {
	if got := ringRemedy(fmt.Errorf("open: %w", &nvme.NotSupportedError{Feature: "io_uring", Remedy: "x"})); !strings.Contains(got, "6.1") {
		t.Errorf("without io_uring: %q", got)
	}
	if got := ringRemedy(fmt.Errorf("open: %w", unix.EPERM)); !strings.Contains(got, "io_uring") {
		t.Errorf("not permitted: %q", got)
	}
	if got := ringRemedy(errors.New("other")); !strings.Contains(got, "CAP_IPC_LOCK") {
		t.Errorf("other: %q", got)
	}
}

func TestGranted(t *testing.T) {
	all := granted(nvme.Granted{RingsInRegion: true, NoIndexArray: true, DeferTaskrun: true, GatherFixed: true})
	none := granted(nvme.Granted{})
	for i, text := range []string{"WRITEV_FIXED", "deferred", "in the region"} {
		expect(t, "all", all[i], OK, text)
	}
	expect(t, "none", none[0], Warn, "Linux 6.15")
	expect(t, "none", none[1], Warn, "Linux 6.1")
	expect(t, "none", none[2], OK, "without rings in the region (6.5) and rings without an index array (6.6)")
}

func TestNeeds(t *testing.T) {
	n := measured(nil)
	if fmt.Sprint(n.interfaces, n.disks) != "[eth0] [/data/one]" {
		t.Errorf("of a configuration: %v %v", n.interfaces, n.disks)
	}
	n = newNeeds(Options{Config: n.Config, Interfaces: []string{"eth1", "eth1"}, Disks: []string{"/x", "/data/one"}})
	if fmt.Sprint(n.interfaces, n.disks) != "[eth1] [/x /data/one]" {
		t.Errorf("named: %v %v", n.interfaces, n.disks)
	}
	if !n.wants("eth0") || !n.wants("eth1") || n.wants("eth2") {
		t.Error("wants is wrong")
	}
}
