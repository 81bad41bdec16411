package capture

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// contestant is a program that captures from an interface, into files of an existing empty directory.
type contestant struct {
	name    string
	command func(iface, dir string) ([]string, error)
	ready   string        // its text on standard error when packets reach it
	settle  time.Duration // how long it may keep the last packets before it writes them
	files   string        // a pattern for the files that it writes
	format  format
	kill    bool // it is not asked to end
}

// settles is how long most programs wait for the last packets before they are asked to end.
const settles = 300 * time.Millisecond

// longestSettle is the wait of all of them. They wait equally long, so that the other load of the machine,
// which is not known well, costs each as much as the traffic into a program that drops.
func longestSettle(all []contestant) (longest time.Duration) {
	for _, c := range all {
		longest = max(longest, c.settle)
	}
	return longest
}

// ours is unifiedd with settings for the ends of the flow and for the rest. Empty settings are the
// defaults.
func ours(name, program, from, to, rest string) contestant {
	return contestant{name: name, ready: "flow runs", settle: settles, files: "cap-*.pcapng", format: readPcapng,
		command: func(iface, dir string) ([]string, error) {
			config := filepath.Join(dir, "unifiedd.yaml")
			text := fmt.Sprintf("control: {socket: %[1]s/control.sock}\n%[2]s\nflows:\n  - name: capture\n    from: {interface: %[3]s%[4]s}\n    to: {file: %[1]s/cap%[5]s}\n",
				dir, rest, iface, more(from), more(to))
			return []string{program, "run", "-c", config}, os.WriteFile(config, []byte(text), 0o600)
		}}
}

// passive is unifiedd with copies from a packet socket, whose ring has buffer MiB. Its region has only what
// statistics need, and its worker waits for blocks.
func passive(program string, buffer int) contestant {
	return ours("unifiedd", program, fmt.Sprintf("engine: packet, buffer: %dMiB", buffer), "", "workers: [{name: main}]\nregion: {size: 4MiB, extents: 2}")
}

// more returns further keys of a mapping.
func more(keys string) string {
	if keys == "" {
		return ""
	}
	return ", " + keys
}

// buffer is the memory of the others for packets that they have not written yet, in MiB. The default of
// tcpdump and dumpcap is 2, which loses packets. Ours with AF_XDP sockets has as much in extents,
// and its rings. stenotype uses its default of 2048, and ours with a packet socket has the same: both
// write past the page cache, which holds what the others have written while the disk is slow.
const buffer = 512

// stenoBlocks is the default of stenotype.
const stenoBlocks = 2048

// stenotype is the capturing part of stenographer with its defaults, except that it makes no
// index, and writes packets after one second instead of ten. It is killed: if it is asked to end
// with nothing left to write it waits forever (Output::Flush). All its writes are synchronous.
// blocks is its memory, in blocks of 1 MiB.
func stenotype(program, libraries string, blocks int) contestant {
	const age = 1
	return contestant{name: "stenotype", kill: true, ready: "Indexing turned off", settle: (2*age + 1) * time.Second, files: "PKT0/*", format: readSteno,
		command: func(iface, dir string) ([]string, error) {
			err := os.Mkdir(filepath.Join(dir, "PKT0"), 0o700)
			if err == nil {
				err = os.Mkdir(filepath.Join(dir, "IDX0"), 0o700)
			}
			return []string{"env", "LD_LIBRARY_PATH=" + libraries, program, "--iface=" + iface, "--dir=" + dir, "--no_index", "--seccomp=none",
				"--uid=root", "--gid=root", "--blockage_sec=" + strconv.Itoa(age), "--blocks=" + strconv.Itoa(blocks)}, err
		}}
}

func tcpdump(program string) contestant {
	return contestant{name: "tcpdump", ready: "listening on", settle: settles, files: "out.pcap", format: readPcap,
		command: func(iface, dir string) ([]string, error) {
			return []string{program, "-i", iface, "-n", "-Z", "root", "-B", strconv.Itoa(buffer << 10), "-w", filepath.Join(dir, "out.pcap")}, nil
		}}
}

func dumpcap(program string) contestant {
	return contestant{name: "dumpcap", ready: "File:", settle: settles, files: "out.pcapng", format: readPcapng,
		command: func(iface, dir string) ([]string, error) {
			return []string{program, "-i", iface, "-q", "-B", strconv.Itoa(buffer), "-w", filepath.Join(dir, "out.pcapng")}, nil
		}}
}

func netsniff(program string) contestant {
	return contestant{name: "netsniff-ng", ready: "Running!", settle: settles, files: "out.pcap", format: readPcap,
		command: func(iface, dir string) ([]string, error) {
			return []string{program, "--in", iface, "--out", filepath.Join(dir, "out.pcap"), "--silent", "--bind-cpu", strconv.Itoa(receiverCPU),
				"--ring-size", fmt.Sprintf("%dMiB", buffer)}, nil
		}}
}
