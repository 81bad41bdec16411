package bugreport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// machineItems returns the files about the kernel, the hardware and its drivers.
func machineItems() []Item {
	files := func(name string, patterns ...string) Item {
		return Item{name, func(_ context.Context, w io.Writer) error { return show(w, patterns...) }}
	}
	return []Item{
		{"kernel.txt", kernel},
		files("processors.txt", "/sys/devices/system/cpu/online", "/sys/devices/system/cpu/isolated", "/sys/devices/system/cpu/nohz_full",
			"/sys/devices/system/cpu/smt/active", "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", "/sys/devices/system/node/node*/cpulist",
			"/proc/loadavg", "/proc/pressure/*", "/proc/interrupts", "/proc/softirqs", "/proc/cpuinfo"),
		files("memory.txt", "/proc/meminfo", "/proc/buddyinfo", "/sys/kernel/mm/hugepages/*/*", "/sys/devices/system/node/node*/hugepages/*/*",
			"/sys/devices/system/node/node*/meminfo", "/sys/kernel/mm/transparent_hugepage/*", "/proc/vmstat"),
		{"disks.txt", disks},
		{"interfaces.txt", interfaces},
		{"rdma.txt", rdma},
	}
}

// kernelSettings are the values of sysctl that flows depend on.
var kernelSettings = []string{"vm/nr_hugepages*", "vm/nr_overcommit_hugepages", "vm/overcommit_memory", "vm/swappiness", "vm/dirty_*", "vm/max_map_count",
	"kernel/unprivileged_bpf_disabled", "kernel/io_uring_disabled", "kernel/perf_event_paranoid", "kernel/sched_rt_runtime_us", "kernel/numa_balancing", "kernel/tainted",
	"kernel/pid_max", "fs/file-max", "fs/nr_open", "fs/aio-max-nr", "fs/file-nr", "net/core/bpf_jit_enable", "net/core/*mem_max", "net/core/optmem_max",
	"net/core/netdev_*", "net/core/dev_weight", "net/core/busy_*", "net/ipv4/ip_forward", "net/ipv4/tcp_congestion_control"}

// kernelOptions matches the options of the kernel's build that flows depend on.
var kernelOptions = regexp.MustCompile(`(?m)^(?:# )?CONFIG_(?:[A-Z0-9_]*(?:XDP|BPF|IO_URING|HUGETLB|INFINIBAND|RDMA|VETH|PREEMPT)[A-Z0-9_]*|NVME_[A-Z_]*|HZ(?:_[0-9]+)?|NUMA|NO_HZ_[A-Z]+)\b.*$`)

// kernel writes facts about the kernel and the distribution.
func kernel(_ context.Context, w io.Writer) error {
	errs := []error{show(w, "/proc/sys/kernel/ostype", "/proc/version", "/etc/os-release", "/proc/uptime",
		"/sys/devices/system/clocksource/clocksource0/current_clocksource", "/sys/kernel/security/lsm", "/sys/kernel/security/lockdown")}
	if text, err := readSome("/proc/cmdline", 64<<10); err == nil {
		fmt.Fprintf(w, "/proc/cmdline: %s\n", maskParameters(strings.TrimSpace(string(text))))
	}
	for _, name := range kernelSettings {
		errs = append(errs, show(w, "/proc/sys/"+name))
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		if text, err := readSome("/boot/config-"+unix.ByteSliceToString(u.Release[:]), 4<<20); err == nil {
			fmt.Fprintln(w, "\n== options of the kernel's build")
			for _, line := range kernelOptions.FindAll(text, -1) {
				fmt.Fprintf(w, "%s\n", line)
			}
		}
	}
	return errors.Join(append(errs, show(w, "/proc/modules"))...)
}

// disks writes facts about block devices and mounts.
func disks(ctx context.Context, w io.Writer) error {
	err := show(w, "/proc/partitions", "/proc/diskstats", "/proc/mounts", "/sys/block/*/queue/*", "/sys/block/*/device/model", "/sys/block/*/device/firmware_rev",
		"/sys/class/nvme/*/model", "/sys/class/nvme/*/firmware_rev", "/sys/class/nvme/*/state", "/sys/class/nvme/*/transport")
	return errors.Join(err, runCommand(ctx, w, "df", "-PT"), runCommand(ctx, w, "df", "-Pi"))
}

// mostInterfaces is the number of interfaces that a report describes.
const mostInterfaces = 64

// interfaces writes facts about network interfaces and their drivers.
func interfaces(ctx context.Context, w io.Writer) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list the interfaces: %w", err)
	}
	errs := []error{show(w, "/proc/net/dev", "/proc/net/softnet_stat")}
	if len(links) > mostInterfaces {
		errs = append(errs, fmt.Errorf("there are %d interfaces, and the file has the first %d", len(links), mostInterfaces))
		links = links[:mostInterfaces]
	}
	for _, link := range links {
		a := link.Attrs()
		fmt.Fprintf(w, "\n==== %s: index %d, kind %s, %s, MTU %d, %s, %d rx and %d tx queues, flags %v\n", a.Name, a.Index, link.Type(), a.HardwareAddr, a.MTU, a.OperState, a.NumRxQueues, a.NumTxQueues, a.Flags)
		if x := a.Xdp; x != nil && x.Attached {
			fmt.Fprintf(w, "XDP program %d is attached, mode %d\n", x.ProgId, x.AttachMode)
		}
		driver(w, a.Name)
		errs = append(errs, show(w, "/sys/class/net/"+a.Name+"/statistics/*", "/sys/class/net/"+a.Name+"/device/numa_node", "/sys/class/net/"+a.Name+"/queues/*/rps_cpus"))
		if a.Flags&net.FlagLoopback != 0 {
			continue
		}
		for _, what := range []string{"-g", "-l", "-c", "-a", "-k", "-n", "-S"} {
			errs = append(errs, runCommand(ctx, w, "ethtool", what, a.Name))
		}
	}
	errs = append(errs, runCommand(ctx, w, "ip", "-details", "-statistics", "link"), runCommand(ctx, w, "ip", "address"), runCommand(ctx, w, "ip", "route"), runCommand(ctx, w, "bpftool", "net"))
	return errors.Join(errs...)
}

// driver writes what the driver of an interface says about itself.
func driver(w io.Writer, name string) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		fmt.Fprintf(w, "driver: %v\n", err)
		return
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		fmt.Fprintf(w, "driver: %v\n", err) // as of interfaces without one
		return
	}
	text := unix.ByteSliceToString
	fmt.Fprintf(w, "driver %s, version %s, firmware %s, bus %s\n", text(info.Driver[:]), text(info.Version[:]), text(info.Fw_version[:]), text(info.Bus_info[:]))
}

// rdma writes facts about RDMA devices.
func rdma(ctx context.Context, w io.Writer) error {
	const devices = "/sys/class/infiniband"
	names, err := os.ReadDir(devices)
	if err != nil || len(names) == 0 {
		fmt.Fprintln(w, "the kernel has no RDMA devices")
		return nil
	}
	var errs []error
	for _, n := range names {
		at := filepath.Join(devices, n.Name())
		errs = append(errs, show(w, at+"/node_type", at+"/fw_ver", at+"/hca_type", at+"/board_id", at+"/ports/*/state", at+"/ports/*/link_layer", at+"/ports/*/rate",
			at+"/ports/*/gids/[0-9]", at+"/ports/*/counters/*", at+"/ports/*/hw_counters/*"))
	}
	errs = append(errs, runCommand(ctx, w, "rdma", "link"), runCommand(ctx, w, "rdma", "resource", "show"), runCommand(ctx, w, "rdma", "resource", "show", "qp"), runCommand(ctx, w, "ibv_devinfo", "-v"))
	return errors.Join(errs...)
}
