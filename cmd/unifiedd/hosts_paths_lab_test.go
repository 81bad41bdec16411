//go:build verbs && cgo

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// TestHostPaths: two daemons serve one disk as one subsystem, each on an RDMA device and a wire of its
// own. The kernel's initiator connects to both, with native multipath. fio writes and verifies while
// one path becomes inaccessible and optimized again, a wire is cut, and a daemon is killed. fio sees
// no error. Commands go where the states say.
func TestHostPaths(t *testing.T) {
	labenv.Guest(t)
	b, err := os.ReadFile("/sys/module/nvme_core/parameters/multipath")
	if err != nil || strings.TrimSpace(string(b)) != "Y" {
		t.Fatalf("native multipath is %q: %v", b, err)
	}
	testenv.HugePages(t, 132<<20)
	disk, file := labenv.Map(t, 64<<20).Path, filepath.Join(t.TempDir(), "reservations")
	p := &hostPaths{T: t}
	for i, wire := range []labenv.Wire{{Card: "virtio0", Here: "10.79.0.1", There: "10.79.0.2"}, {Card: "igb0", Here: "10.80.0.1", There: "10.80.0.2"}} {
		other := map[string]string{"virtio0": "virtio1", "igb0": "igb1"}[wire.Card]
		one := &hostPath{hostPaths: p, wire: wire, device: labenv.SoftRoCE(t, wire.Card, wire.Here+"/24"), disk: disk, reservations: file, dir: t.TempDir(), controllers: fmt.Sprintf("%d-%d", 1+1000*i, 1000+1000*i)}
		initiator := labenv.SoftRoCE(t, other, wire.There+"/24")
		t.Cleanup(func() {
			labenv.RDMAAtRest(t, one.device)
			labenv.RDMAAtRest(t, initiator, "cq") // the initiator keeps completion queues for later use
		})
		wire.Around(t)
		p.all = append(p.all, one)
	}
	near, far := p.all[0], p.all[1]
	near.launch("optimized")
	far.launch("non-optimized")
	tool(t, "modprobe", "nvme_rdma")
	for _, one := range p.all {
		one.connect()
	}
	head := hostDisk(t, servedNQN)
	near.sees("optimized")
	far.sees("non-optimized")
	end := p.fio(head)
	near.grows("an optimized path")

	p.reserve(head)
	near.reload("inaccessible")
	near.sees("inaccessible")
	far.grows("the path that is left")
	still := near.served()
	time.Sleep(time.Second)
	if now := near.served(); now != still {
		t.Errorf("%d commands were completed by an inaccessible path", now-still)
	}
	far.reload("optimized")
	near.reload("non-optimized")
	near.sees("non-optimized")
	far.grows("the path that is optimized now")

	before := time.Now()
	far.wire.Cut(t)
	near.grows("the other path, after the wire was cut")
	t.Logf("the wire was cut, and commands came by the other path after %v", time.Since(before).Round(time.Millisecond))
	far.wire.Mend(t)
	far.sees("optimized")
	far.grows("the path that is back")

	far.daemon.Kill()
	near.grows("the other path, after a daemon was killed")
	far.launch("optimized")
	far.sees("optimized")
	far.grows("the daemon that is back")
	p.unreserve(head)

	for i := range 6 { // changes under load
		near.reload([]string{"optimized", "inaccessible"}[i%2])
		far.reload([]string{"inaccessible", "optimized"}[i%2])
	}
	end()
	p.disconnect()
	for _, one := range p.all {
		one.daemon.Terminate(t)
	}
}

// hostPaths are the paths of a host to one subsystem.
type hostPaths struct {
	*testing.T
	all       []*hostPath
	connected bool
}

// hostPath is a daemon, and the wire between it and the host.
type hostPath struct {
	*hostPaths
	wire        labenv.Wire
	device      string
	disk        string
	dir         string
	controllers string

	reservations string // the file
	daemon       *daemon.Daemon
}

// text is the configuration with a state.
func (p *hostPath) text(state string) string {
	return fmt.Sprintf(`
region: {size: 64MiB, extent: 512KiB, extents: 24}
flows:
  - name: volume
    from: {device: %s}
    to: {rdma: %s, listen: "%s:4420", subsystem: %s, allow_any_host: true, clients: 8, window: 64, force: true, controllers: %s, ana: %s, reservations: %s}
`, p.disk, p.device, p.wire.Here, servedNQN, p.controllers, state, p.reservations)
}

// launch starts the daemon and waits until it serves.
func (p *hostPath) launch(state string) {
	p.Helper()
	p.daemon = launchHosts(p.T, p.dir, p.text(state))
}

// launchHosts starts a daemon that serves hosts, and waits until it does. What it said is logged if the test fails.
func launchHosts(t *testing.T, dir, text string) *daemon.Daemon {
	t.Helper()
	d := daemon.Launch(t, testenv.Tool(t, "unifiedd"), daemon.Here{}, dir, text)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("a daemon said:\n%s", d.Log)
		}
	})
	d.Running(t)
	return d
}

// reload gives the daemon another state. The flow goes on.
func (p *hostPath) reload(state string) {
	p.Helper()
	p.daemon.Configure(p.T, p.text(state))
	var said, errs sink
	if code := run([]string{"reload", "--socket", p.daemon.Socket}, &said, &errs); code != 0 || !strings.Contains(line(string(said), "subsystems"), "volume") {
		p.Errorf("reload ends with %d: %s\n%s", code, errs, said)
	}
}

// served returns how many reads and writes the daemon has completed.
func (p *hostPath) served() uint64 {
	p.Helper()
	s, err := p.daemon.Status()
	testenv.Must(p, err)
	return s.Flows[0].Hosts.Commands["read"] + s.Flows[0].Hosts.Commands["write"]
}

// grows waits until the daemon has completed more reads and writes.
func (p *hostPath) grows(why string) {
	p.Helper()
	from := p.served()
	testenv.Wait(p, testenv.Within(30*time.Second), "commands by "+why, func() bool { return p.served() > from+50 })
}

// sees waits until the host has the path, with a state of the namespace.
func (p *hostPath) sees(state string) {
	p.Helper()
	var is string
	defer func() {
		if p.Failed() {
			p.Logf("the state at %s is %q", p.wire.Here, is)
		}
	}()
	testenv.Wait(p, testenv.Within(30*time.Second), "the host to see "+state+" at "+p.wire.Here, func() bool {
		is = ""
		controllers, _ := filepath.Glob("/sys/class/nvme/nvme*")
		for _, c := range controllers {
			if nqn, at, live := sysfs(c, "subsysnqn"), sysfs(c, "address"), sysfs(c, "state"); nqn != servedNQN || !strings.Contains(at, "traddr="+p.wire.Here+",") || live != "live" {
				continue
			}
			states, _ := filepath.Glob(c + "/nvme*c*n1/ana_state")
			for _, file := range states {
				is = sysfs(filepath.Dir(file), "ana_state")
			}
		}
		return is == state
	})
}

// reservations is what a report says of a namespace.
type reservations struct {
	generation uint32
	kind       uint8
	key        uint64 // of the host's registration; 0: it is not registered
	holds      bool
}

// reserve reserves the namespace for the host, as cluster software does. The first steps, and the
// answers to them, are those of the case nvme/054 of blktests. The state stays when daemons end, and
// is the same at both.
func (p *hostPaths) reserve(head string) {
	p.Helper()
	p.reports(head, reservations{})
	for _, step := range []struct {
		command []string
		want    reservations
	}{
		{[]string{"resv-register", "--nrkey=4", "--rrega=0"}, reservations{generation: 1, key: 4}},
		{[]string{"resv-register", "--crkey=4", "--nrkey=5", "--rrega=2"}, reservations{generation: 2, key: 5}},
		{[]string{"resv-register", "--crkey=5", "--rrega=1"}, reservations{generation: 3}},
		{[]string{"resv-register", "--nrkey=4", "--rrega=0"}, reservations{generation: 4, key: 4}},
		{[]string{"resv-acquire", "--crkey=4", "--rtype=1", "--racqa=0"}, reservations{generation: 4, kind: 1, key: 4, holds: true}},
		{[]string{"resv-acquire", "--crkey=4", "--prkey=4", "--rtype=2", "--racqa=1"}, reservations{generation: 5, kind: 2, key: 4, holds: true}}, // the holder takes another type
		{[]string{"resv-release", "--crkey=4", "--rtype=2", "--rrela=0"}, reservations{generation: 5, key: 4}},
		{[]string{"resv-acquire", "--crkey=4", "--rtype=1", "--racqa=0"}, reservations{generation: 5, kind: 1, key: 4, holds: true}},
		{[]string{"resv-release", "--crkey=4", "--rrela=1"}, reservations{generation: 6}}, // clear
	} {
		p.becomes(head, step.want, step.command...)
	}
	free, held := reservations{generation: 7, key: 0xa1}, reservations{generation: 7, key: 0xa1, holds: true}
	p.becomes(head, free, "resv-register", "--nrkey=0xa1", "--rrega=0", "--cptpl=3")
	for held.kind = 1; held.kind <= 6; held.kind++ {
		p.becomes(head, held, "resv-acquire", "--crkey=0xa1", fmt.Sprintf("--rtype=%d", held.kind), "--racqa=0")
		p.becomes(head, free, "resv-release", "--crkey=0xa1", fmt.Sprintf("--rtype=%d", held.kind), "--rrela=0")
	}
	held.kind = 3
	p.becomes(head, held, "resv-acquire", "--crkey=0xa1", "--rtype=3", "--racqa=0")
	if out, err := exec.Command(testenv.Tool(p, "nvme"), "resv-acquire", head, "--namespace-id=1", "--crkey=0xa2", "--rtype=3", "--racqa=0").CombinedOutput(); err == nil {
		p.Errorf("a wrong key is right: %s", out)
	}
}

// unreserve checks that the reservation is still there, and gives it up.
func (p *hostPaths) unreserve(head string) {
	p.Helper()
	p.reports(head, reservations{generation: 7, kind: 3, key: 0xa1, holds: true})
	p.becomes(head, reservations{generation: 7, key: 0xa1}, "resv-release", "--crkey=0xa1", "--rtype=3", "--rrela=0")
	p.becomes(head, reservations{generation: 8}, "resv-register", "--crkey=0xa1", "--rrega=1")
}

// nvme runs a command of nvme-cli for the namespace. ok is false if the command's path went before
// the answer came, as it does in a guest that is too busy for its keep-alive time. The command may
// have been executed.
func (p *hostPaths) nvme(head, command string, args ...string) (out []byte, ok bool) {
	p.Helper()
	var said bytes.Buffer
	cmd := exec.Command(testenv.Tool(p, "nvme"), append([]string{command, head, "--namespace-id=1"}, args...)...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if ok = err == nil; !ok && !strings.Contains(said.String(), "Interrupted system call") {
		p.Fatalf("%v: %v\n%s", cmd.Args, err, &said)
	}
	return out, ok
}

// becomes runs a command of reservations, and checks the report after it.
func (p *hostPaths) becomes(head string, want reservations, command ...string) {
	p.Helper()
	for range 10 {
		if _, ok := p.nvme(head, command[0], command[1:]...); ok {
			p.reports(head, want)
			return
		}
		if p.report(head) == want { // it was executed
			return
		}
	}
	p.Fatalf("%v is never answered", command)
}

// reports checks what a report says.
func (p *hostPaths) reports(head string, want reservations) {
	p.Helper()
	if is := p.report(head); is != want {
		p.Errorf("the report says %+v, not %+v", is, want)
	}
}

// report reads the report of the namespace.
func (p *hostPaths) report(head string) reservations {
	p.Helper()
	var b []byte
	for n, ok := 0, false; n < 10 && !ok; n++ {
		b, ok = p.nvme(head, "resv-report", "--eds", "--numd=63", "--raw-binary")
	}
	if len(b) != 256 {
		p.Fatalf("a report of %d bytes", len(b))
	}
	le := binary.LittleEndian
	is := reservations{generation: le.Uint32(b), kind: b[4]}
	if n := le.Uint16(b[5:]); n > 0 { // the first registrant follows the header
		one := b[64:]
		is.key, is.holds = le.Uint64(one[8:]), one[2] == 1
		if n > 1 || le.Uint16(one) != 0xffff || hex.EncodeToString(one[16:32]) != strings.ReplaceAll(hostID, "-", "") {
			p.Errorf("%d registrants, the first one with controller %#x and host %x", n, le.Uint16(one), one[16:32])
		}
	}
	return is
}

// sysfs reads an attribute; empty: there is none.
func sysfs(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// connect makes the host connect by this path. From then on the host reconnects by itself.
func (p *hostPath) connect() {
	p.Helper()
	tool(p.T, "nvme", "connect", "-t", "rdma", "-a", p.wire.Here, "-s", "4420", "-w", p.wire.There, "-n", servedNQN, "--hostid", hostID, "--hostnqn", hostNQN,
		"--nr-io-queues", "2", "--keep-alive-tmo", strconv.Itoa(int(keepAlive/time.Second)), "--reconnect-delay", "1", "--ctrl-loss-tmo", "600")
	if p.connected {
		return
	}
	p.connected = true
	p.Cleanup(func() {
		p.disconnect()
		if p.Failed() {
			out, _ := exec.Command("bash", "-c", "nvme list-subsys; dmesg | tail -n 80").CombinedOutput()
			p.Logf("the kernel says:\n%s", out)
		}
	})
}

// disconnect makes the host disconnect from all paths.
func (p *hostPaths) disconnect() {
	p.Helper()
	if p.connected {
		p.connected = false
		tool(p.T, "nvme", "disconnect", "-n", servedNQN)
	}
}

// fio writes to a disk and verifies, until end is called.
func (p *hostPaths) fio(disk string) (end func()) {
	p.Helper()
	return labenv.Verifying(p, "--name=paths", "--filename="+disk, "--size=4m", "--bsrange=4k-64k", "--iodepth=8", "--randseed=11")
}
