package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// inherited has the file descriptor numbers of files in the emulator.
type inherited struct {
	initramfs, channel, disk, scratch, blocks, plain, link, tap int
}

// arguments returns the emulator's command line. With -nodefaults the emulator has only the devices
// that it names.
func (c Config) arguments(fds inherited) []string {
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-M", "q35,nvdimm=on", "-cpu", "max",
		"-m", fmt.Sprintf("%d,slots=1,maxmem=%dM", memoryMiB, memoryMiB+persistentMiB), "-smp", fmt.Sprintf("%d,sockets=%d", processors, max(1, c.Nodes)),
		"-kernel", c.Kernel.Image, "-initrd", fdPath(fds.initramfs), "-append", c.commandLine(),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
	}
	args = append(args, accelerators()...)
	for _, dir := range c.Emulator.Data {
		args = append(args, "-L", dir)
	}
	args = append(args, persistent()...)
	args = append(args, c.nodes()...)
	args = append(args, hostSide(fds)...)
	args = append(args, c.disks(fds)...)
	args = append(args, oddDisks(fds)...)
	args = append(args, c.recorded()...)
	args = append(args, c.network()...)
	if c.Link != nil {
		args = append(args, c.link(fds.link)...)
	}
	if c.Tap != nil {
		args = append(args, c.tap(fds.tap)...)
	}
	return args
}

// accelerators are KVM, where the processor has the extensions for it, and the emulator's translator. Without the
// extensions, /dev/kvm may exist and kernels not boot.
func accelerators() []string {
	translator := []string{"-accel", "tcg,thread=multi"}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !hasVirtualization(info) {
		return translator
	}
	return append([]string{"-accel", "kvm"}, translator...)
}

// hasVirtualization reports whether the text of /proc/cpuinfo has the flag of Intel's or AMD's extensions.
func hasVirtualization(info []byte) bool {
	for line := range strings.Lines(string(info)) {
		name, flags, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == "flags" {
			fields := strings.Fields(flags)
			return slices.Contains(fields, "vmx") || slices.Contains(fields, "svm")
		}
	}
	return false
}

func fdPath(fd int) string { return fmt.Sprintf("/dev/fd/%d", fd) }

// commandLine returns the kernel's command line. A kernel that has an oops stops, which ends the
// emulator: results after an oops prove nothing. The console gets warnings and worse. The
// processors' time stamp counters are the host's. On a busy machine the kernel distrusts them, and
// each reading of the clock then costs a system call and an access to a device.
// The kernel does not test either whether the timer's interrupts come in time: on a busy machine it
// panics when the emulator is late.
func (c Config) commandLine() string {
	line := fmt.Sprintf("console=ttyS0 loglevel=5 panic=-1 oops=panic tsc=reliable no_timer_check net.ifnames=0 hugepages=%d", hugePages)
	return strings.TrimSpace(line + " " + c.Append)
}

// persistent is a module of persistent memory.
func persistent() []string {
	return []string{
		"-object", fmt.Sprintf("memory-backend-ram,id=persistent,size=%dM", persistentMiB),
		"-device", "nvdimm,memdev=persistent",
	}
}

// nodes distributes memory and processors, and gives each node a bus.
func (c Config) nodes() []string {
	if c.Nodes < 2 {
		return nil
	}
	half := memoryMiB / 2
	var args []string
	for node := range 2 {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=memory%d,size=%dM", node, half),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%[1]d,memdev=memory%[1]d", node),
			"-device", fmt.Sprintf("pxb-pcie,id=node%d,bus_nr=%d,bus=pcie.0,numa_node=%[1]d", node, 64*(node+1)))
	}
	return args
}

// bus returns the bus of devices on that node.
func (c Config) bus(node int) string {
	if c.Nodes > 1 {
		return fmt.Sprintf("node%d", node)
	}
	return "pcie.0"
}

// hostSide returns the channel, and the host's root directory.
func hostSide(fds inherited) []string {
	return []string{
		"-device", "virtio-serial-pci,bus=pcie.0", "-chardev", fmt.Sprintf("socket,id=channel,fd=%d", fds.channel),
		"-device", "virtserialport,chardev=channel,name=" + wire.Port,
		"-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
		"-device", "virtio-9p-pci,fsdev=root,bus=pcie.0,mount_tag=" + wire.HostTag,
	}
}

// disks returns an NVMe disk for tests and a disk for temporary files. Their contents are lost with
// the guest, so the host need not flush them.
func (c Config) disks(fds inherited) []string {
	return []string{
		"-drive", "if=none,id=disk,format=raw,cache=unsafe,discard=unmap,detect-zeroes=unmap,file=" + fdPath(fds.disk),
		"-drive", "if=none,id=scratch,format=raw,cache=unsafe,discard=unmap,file=" + fdPath(fds.scratch),
		"-device", c.port("disk", 1), "-device", "nvme,drive=disk,serial=lab0,bus=disk-port",
		"-device", "virtio-blk-pci,drive=scratch,bus=pcie.0,serial=" + wire.ScratchSerial,
	}
}

// oddDisks returns a second NVMe controller, with unusual namespaces and a plain one that is like
// the first disk. No driver binds it until a test asks for it.
func oddDisks(fds inherited) []string {
	return []string{
		"-blockdev", "driver=null-co,node-name=small,read-zeroes=on,size=3145728",
		"-drive", "if=none,id=blocks,format=raw,cache=unsafe,discard=unmap,file=" + fdPath(fds.blocks),
		"-blockdev", "driver=null-co,node-name=protected,read-zeroes=on,size=268435456,read-only=on",
		"-device", "nvme,id=odd,serial=lab1,bus=pcie.0,addr=1e",
		"-device", "nvme-ns,bus=odd,nsid=1,drive=small,shared=off",
		"-device", "nvme-ns,bus=odd,nsid=2,drive=blocks,shared=off,logical_block_size=4096,physical_block_size=4096",
		"-device", "nvme-ns,bus=odd,nsid=3,drive=protected,shared=off",
		"-drive", "if=none,id=plain,format=raw,cache=unsafe,discard=unmap,detect-zeroes=unmap,file=" + fdPath(fds.plain),
		"-device", "nvme-ns,bus=odd,nsid=4,drive=plain,shared=off",
	}
}

// recorded returns the disk whose writes are recorded. It is a virtio disk: its driver uses flushes
// and no write-through, so only a flush makes data durable. The record has completed requests, in
// order of completion. The disk does not pass on discards, as a disk without them keeps the old
// data.
func (c Config) recorded() []string {
	if c.Record == "" {
		return nil
	}
	return []string{
		"-blockdev", "driver=file,node-name=recorded-disk,cache.no-flush=on,filename=" + filepath.Join(c.Record, "disk"),
		"-blockdev", "driver=file,node-name=recorded-log,cache.no-flush=on,filename=" + filepath.Join(c.Record, "log"),
		"-blockdev", "driver=blklogwrites,node-name=recorded,file=recorded-disk,log=recorded-log,log-sector-size=512",
		"-device", "virtio-blk-pci,drive=recorded,bus=pcie.0,write-cache=on,serial=" + wire.RecordedSerial,
	}
}

// port returns a PCI Express port. It takes one device.
func (c Config) port(name string, node int) string {
	return fmt.Sprintf("pcie-root-port,id=%s-port,bus=%s,chassis=%d", name, c.bus(node), portNumber(name))
}

// portNumber is different for each port.
func portNumber(name string) int {
	for n, card := range cards {
		if card.Name == name {
			return n + 2
		}
	}
	return 1
}

// anyMemory is a virtio card whose driver may use any memory. The driver needs this for zero copy.
const anyMemory = "virtio-net-pci,iommu_platform=on,disable-legacy=on"

// models has the emulator's devices for the cards.
var models = []string{"igb", "igb", anyMemory, "virtio-net-pci"}

func (c Config) network() []string {
	var args []string
	for n, card := range cards {
		args = append(args,
			"-netdev", fmt.Sprintf("hubport,id=wire-%s,hubid=%d", card.Name, n/2),
			"-device", c.port(card.Name, n%2),
			"-device", fmt.Sprintf("%s,netdev=wire-%s,romfile=,mac=%s,bus=%[2]s-port", models[n], card.Name, card.MAC))
	}
	return args
}

func (c Config) link(fd int) []string {
	return []string{
		"-netdev", fmt.Sprintf("stream,id=wire-link,addr.type=fd,addr.str=%d", fd),
		"-device", anyMemory + ",netdev=wire-link,bus=pcie.0,romfile=,host_mtu=4200,mac=" + c.linkCard().MAC,
	}
}

// tap returns the card that leads to the host. The emulator sees that packets have no header in
// front of them, so the card leaves no checksum and no segmentation to others.
func (c Config) tap(fd int) []string {
	return []string{
		"-netdev", fmt.Sprintf("tap,id=wire-host,fd=%d", fd),
		"-device", fmt.Sprintf("virtio-net-pci,netdev=wire-host,bus=pcie.0,romfile=,host_mtu=%d,mac=%s", c.TapMTU, tapCard.MAC),
	}
}
