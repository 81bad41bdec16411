//go:build verbs && cgo

package nvmet

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// TestPorts: a subsystem has six ports, each with ANA states of its own. The kernel's initiator has a
// controller at each, with native multipath. The test takes the steps of the cases of blktests that
// are about paths and namespaces that come and go. docs/how-to/nvme-of.md lists them.
func TestPorts(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "make lab runs it; TestHostPaths has several paths, and TestChange has namespaces that come and go")
	p := newPorts(t, 6)
	if labenv.Kernel(t) == labenv.Linux7 { // earlier ones have no delay
		p.delayedRemoval()
	}
	p.failover(p.all[:4])
	p.remap()
	p.comeAndGo()
	p.unnoticed()
	for _, one := range p.all {
		one.initiator.disconnect()
		testenv.Wait(t, waitLimit, "the host to be gone", func() bool { return one.server.Stats().Hosts == 0 })
		one.rest()
		if st := one.server.Stats(); st.Failed > 0 || st.Disk.InFlight > 0 {
			t.Errorf("in the end of %s: %+v", one.listen, st)
		}
	}
}

// ports are the ports of a subsystem.
type ports struct {
	*rig
	disks [3]*nvme.Target // of namespaces 1 to 3
	all   []*port
}

// port is a server, and the host's controller there.
type port struct {
	*served
	has       []Namespace
	initiator *initiator
}

func newPorts(t *testing.T, n int) *ports {
	t.Helper()
	p := &ports{rig: newRig(t)}
	p.pause = 2 * time.Millisecond // six workers share two processors
	for i := range p.disks {
		p.disks[i] = p.disk(16 << 20)
	}
	for i := range n {
		at := *p.rig
		at.listen = fmt.Sprintf("%s:%d", address, 4420+i)
		v := at.serve(Config{Sessions: 4, Queues: 1, Depth: 32, Capsule: 4096, Large: 5, FirstController: uint16(1 + 100*i), LastController: uint16(100 + 100*i), Subsystems: []Subsystem{{NQN: nqn, AnyHost: true}}})
		p.all = append(p.all, &port{served: v})
	}
	return p
}

// connect makes the host connect to the port, which may have no namespace.
func (p *port) connect() {
	p.Helper()
	_, service, _ := strings.Cut(p.listen, ":")
	testenv.Wait(p, waitLimit, "a connection to "+p.listen, func() bool { // Linux gives up a connection after three seconds, which a busy guest needs
		i, err := p.tryConnect(",trsvcid=" + service + ",nr_io_queues=1,reconnect_delay=1,ctrl_loss_tmo=120")
		if err != nil {
			p.Log(err)
			return false
		}
		p.initiator = i
		return true
	})
}

// put gives the port a namespace, in place of the one with the same number.
func (p *port) put(n Namespace) {
	p.Helper()
	p.has = append(slices.DeleteFunc(p.has, func(one Namespace) bool { return one.ID == n.ID }), n)
	p.change()
}

// take takes a namespace from the port.
func (p *port) take(id uint32) {
	p.Helper()
	p.has = slices.DeleteFunc(p.has, func(one Namespace) bool { return one.ID == id })
	p.change()
}

func (p *port) change() {
	p.Helper()
	all := slices.Clone(p.has)
	p.must(p.do(func() error {
		_, err := p.server.Change([]Subsystem{{NQN: nqn, AnyHost: true, Namespaces: all}})
		return err
	}))
}

// numbered returns the UUID of the nth disk that has a number.
func numbered(id, n int) [16]byte { return [16]byte{1: 11, 14: byte(n), 15: byte(id)} }

// hostPath is what the kernel knows of a namespace at a port.
type hostPath struct{ uuid, state string }

var stateNames = map[fabrics.ANAState]string{fabrics.ANAOptimized: "optimized", fabrics.ANANonOptimized: "non-optimized", fabrics.ANAInaccessible: "inaccessible"}

func sysfs(dir, name string) string {
	b, _ := os.ReadFile(filepath.Join(dir, name)) // it may have gone
	return strings.TrimSpace(string(b))
}

// paths returns what the kernel knows of the namespaces at the port.
func (p *port) paths() map[string]hostPath {
	all := map[string]hostPath{}
	dirs, _ := filepath.Glob("/sys/class/nvme/" + p.initiator.name + "/nvme*c*n*")
	for _, dir := range dirs {
		all[sysfs(dir, "nsid")] = hostPath{sysfs(dir, "uuid"), sysfs(dir, "ana_state")}
	}
	return all
}

// known reports whether the kernel knows the namespaces of the port, and no others.
func (p *port) known() bool {
	is := p.paths()
	for _, n := range p.has {
		if is[strconv.Itoa(int(n.ID))] != (hostPath{uuidText(n.UUID), stateNames[n.ANA]}) {
			return false
		}
	}
	return len(is) == len(p.has)
}

func uuidText(u [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// await waits until the host knows the namespaces of ports.
func (p *ports) await(all []*port) {
	p.Helper()
	for _, one := range all {
		one.awaitKnown()
	}
}

func (p *port) awaitKnown() {
	p.Helper()
	defer func() {
		if p.Failed() {
			p.Logf("%s at %s has %+v, and the kernel knows %v", p.initiator.name, p.listen, p.has, p.paths())
		}
	}()
	testenv.Wait(p, waitLimit, "the host to know the namespaces at "+p.listen, p.known)
}

// head returns the path of the host's disk with a UUID; empty: there is none.
func head(uuid [16]byte) string {
	dirs, _ := filepath.Glob("/sys/block/nvme*n*")
	for _, dir := range dirs {
		if name := filepath.Base(dir); sysfs(dir, "uuid") == uuidText(uuid) && !strings.Contains(name, "c") { // a name with c is a path
			return "/dev/" + name
		}
	}
	return ""
}

// rescan makes the host read the namespaces of a port again.
func (p *port) rescan() {
	p.Helper()
	p.must(os.WriteFile("/sys/class/nvme/"+p.initiator.name+"/rescan_controller", []byte("1"), 0))
}

// done returns how many reads and writes the port has completed.
func (p *port) done() uint64 {
	st := p.server.Stats()
	return st.Read.Commands + st.Written.Commands
}

// grows waits until the port has completed more reads and writes.
func (p *port) grows() {
	p.Helper()
	from := p.done()
	testenv.Wait(p, waitLimit, "commands by "+p.listen, func() bool { return p.done() >= from+25 })
}

// only checks that one port completes all reads and writes.
func (p *ports) only(all []*port, used *port) {
	p.Helper()
	used.grows()
	for _, one := range all {
		if one != used {
			testenv.Wait(p, waitLimit, "the disk to be at rest at "+one.listen, func() bool { return one.server.Stats().Disk.InFlight == 0 })
		}
	}
	used.grows() // until then the host has the last completions of the others
	var before []uint64
	for _, one := range all {
		before = append(before, one.done())
	}
	used.grows()
	for i, one := range all {
		if now := one.done(); one != used && now != before[i] {
			p.Errorf("%s completed %d commands, and %s should complete all", one.listen, now-before[i], used.listen)
		}
	}
}

// delayedRemoval: while the delay lasts that the host's administrator has set, a disk without a path
// stays, and its commands wait for a path. If none comes, they fail, and the disk goes (nvme/068).
func (p *ports) delayedRemoval() {
	p.Helper()
	one := p.all[0]
	one.put(Namespace{ID: 1, Disk: p.disks[0], UUID: numbered(1, 0), ANA: fabrics.ANAOptimized})
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	p.must(err)
	defer unix.Munmap(page)
	copy(page, "written while there was no path")
	// without returns the disk, whose last path has gone, and the time before that.
	without := func(delay string) (f *os.File, begin time.Time) {
		p.Helper()
		one.connect()
		path := one.initiator.path(1)
		p.must(os.WriteFile("/sys/block/"+filepath.Base(path)+"/delayed_removal_secs", []byte(delay), 0))
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
		p.must(err)
		begin = time.Now()
		one.initiator.disconnect()
		return f, begin
	}
	gone := func(f *os.File) bool {
		_, err := os.Stat("/sys/block/" + filepath.Base(f.Name()))
		return errors.Is(err, os.ErrNotExist)
	}
	const delay = 5 * time.Second
	f, begin := without("5")
	defer f.Close()
	if _, err := f.WriteAt(page, 0); !errors.Is(err, unix.EIO) || time.Since(begin) < delay {
		p.Errorf("without a path, a write ends after %v: %v", time.Since(begin), err)
	}
	testenv.Wait(p, waitLimit, "the disk to be gone", func() bool { return gone(f) })
	f, _ = without("120")
	defer f.Close()
	wrote := make(chan error, 1)
	go func() { _, err := f.WriteAt(page, 0); wrote <- err }()
	select {
	case err := <-wrote:
		p.Fatalf("a write without a path has ended: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if gone(f) {
		p.Error("the disk is gone")
	}
	one.connect()
	select {
	case err := <-wrote:
		p.check(err)
	case <-time.After(2 * waitLimit):
		p.Fatal("a write does not end, and there is a path again")
	}
	p.must(os.WriteFile("/sys/block/"+filepath.Base(f.Name())+"/delayed_removal_secs", []byte("0"), 0))
	want := bytes.Clone(page)
	readAt(p.rig, p.disks[0].Path(), page, 0)
	if !bytes.Equal(page, want) {
		p.Errorf("the disk has %q", page[:32])
	}
	one.initiator.disconnect()
	testenv.Wait(p, waitLimit, "the disk to be gone", func() bool { return gone(f) })
}

// failover: while fio verifies, the optimized path moves to another port and back (nvme/057), the host
// reads the namespaces again and again (nvme/053), and the namespace is removed from the optimized
// port. fio sees no error. Commands go where the states say.
func (p *ports) failover(all []*port) {
	p.Helper()
	states := func(at int, n ...fabrics.ANAState) {
		p.Helper()
		for i, state := range n {
			all[at+i].put(Namespace{ID: 1, Disk: p.disks[0], UUID: numbered(1, 0), ANA: state})
		}
	}
	failback := []fabrics.ANAState{fabrics.ANAOptimized, fabrics.ANANonOptimized, fabrics.ANAInaccessible, fabrics.ANAInaccessible}
	states(0, failback...)
	for _, one := range all {
		one.connect()
	}
	disk := all[0].initiator.path(1)
	p.await(all)
	end := labenv.Verifying(p, "--name=ports", "--filename="+disk, "--size=4m", "--bsrange=4k-64k", "--iodepth=8", "--randseed=12")
	p.only(all, all[0])

	states(0, fabrics.ANAInaccessible)
	p.await(all)
	p.only(all, all[1]) // no path is optimized
	states(1, fabrics.ANAInaccessible)
	p.await(all) // no path is left, and fio waits
	states(2, fabrics.ANAOptimized, fabrics.ANANonOptimized)
	p.await(all)
	p.only(all, all[2])
	for range 3 {
		for _, one := range all {
			one.rescan()
		}
		all[2].grows()
	}
	states(0, failback...)
	p.await(all)
	p.only(all, all[0])

	all[0].take(1)
	p.await(all)
	p.only(all, all[1])
	states(0, failback[0])
	p.await(all)
	p.only(all, all[0])
	end()
}

// remap: namespaces are removed and come back with other identifiers, in any order and faster than the
// host follows (nvme/058). Each is a group with two ports. In the end the host knows what there is at
// each port, and each disk is the one that the namespace has.
func (p *ports) remap() {
	p.Helper()
	const rounds = 11
	for _, one := range p.all[4:] {
		one.connect()
	}
	random := rand.New(rand.NewPCG(37, 58))
	for round := 1; round <= rounds; round++ {
		for _, n := range random.Perm(3) {
			for _, one := range p.all {
				one.take(uint32(n + 1))
			}
		}
		for _, n := range random.Perm(3) {
			for i, one := range p.all {
				state := fabrics.ANAInaccessible
				if i/2 == n {
					state = []fabrics.ANAState{fabrics.ANAOptimized, fabrics.ANANonOptimized}[i%2]
				}
				one.put(Namespace{ID: uint32(n + 1), Disk: p.disks[n], UUID: numbered(n+1, round), ANA: state})
			}
		}
	}
	last := time.Now()
	testenv.Wait(p, 2*waitLimit, "the host to know all namespaces", func() bool {
		unknown := slices.DeleteFunc(slices.Clone(p.all), (*port).known)
		if len(unknown) > 0 && time.Since(last) > time.Second { // Linux gives up where a namespace still had another identifier, until it reads the list again
			for _, one := range unknown {
				one.rescan()
			}
			last = time.Now()
		}
		return len(unknown) == 0
	})
	for n, disk := range p.disks {
		text := fmt.Appendf(nil, "this is the disk of namespace %d", n+1)
		var path string
		testenv.Wait(p, waitLimit, fmt.Sprintf("the disk of namespace %d", n+1), func() bool {
			path = head(numbered(n+1, rounds))
			_, err := os.Stat(path)
			return err == nil
		})
		writeAt(p.rig, path, text, 4096)
		got := make([]byte, len(text))
		if readAt(p.rig, disk.Path(), got, 4096); !bytes.Equal(got, text) {
			p.Errorf("%s is not namespace %d, whose disk has %q", path, n+1, got)
		}
	}
}

// comeAndGo: namespaces with one number after the other appear and disappear at the host
// (nvme/052).
func (p *ports) comeAndGo() {
	p.Helper()
	const rounds = 20
	for _, one := range p.all {
		one.has = nil
		one.change()
	}
	p.await(p.all)
	for n := 1; n <= rounds; n++ {
		uuid := numbered(n, 100)
		p.all[0].put(Namespace{ID: uint32(n), Disk: p.disks[0], UUID: uuid, ANA: fabrics.ANAOptimized})
		testenv.Wait(p, waitLimit, fmt.Sprintf("namespace %d at the host", n), func() bool { return head(uuid) != "" })
		p.all[0].take(uint32(n))
		testenv.Wait(p, waitLimit, fmt.Sprintf("namespace %d to be gone", n), func() bool { return head(uuid) == "" })
	}
}

// unnoticed: a host that has masked the event does not learn that its namespace is removed. A write
// to it fails with Invalid Namespace (nvme/055).
func (p *ports) unnoticed() {
	p.Helper()
	const namespaceEvents = 1 << 8
	one, cli := p.all[0], testenv.Tool(p, "nvme")
	one.put(Namespace{ID: 1, Disk: p.disks[0], UUID: numbered(1, 200), ANA: fabrics.ANAOptimized})
	disk, controller := one.initiator.path(1), "/dev/"+one.initiator.name
	events := func() (mask uint32) {
		p.Helper()
		out := p.run(cli, "get-feature", controller, "--feature-id=0xb")
		_, value, _ := strings.Cut(out, "value:")
		n, err := strconv.ParseUint(strings.TrimSpace(value), 0, 32)
		if err != nil {
			p.Fatalf("%q: %v", out, err)
		}
		return uint32(n)
	}
	set := func(mask uint32) {
		p.Helper()
		p.run(cli, "set-feature", controller, "--feature-id=0xb", fmt.Sprintf("--value=%#x", mask))
		if is := events(); is != mask {
			p.Errorf("events %#x, not %#x", is, mask)
		}
	}
	before := events()
	if before&namespaceEvents == 0 {
		p.Errorf("the host does not want events of namespaces: %#x", before)
	}
	set(before &^ namespaceEvents)
	one.take(1)
	block := filepath.Join(p.TempDir(), "block")
	p.must(os.WriteFile(block, make([]byte, 512), 0o600))
	out, err := exec.Command(cli, "write", disk, "--start-block=1", "--block-count=0", "--data-size=512", "--data="+block).CombinedOutput()
	if err == nil || !strings.Contains(strings.ToLower(string(out)), "invalid namespace") {
		p.Errorf("a write to a namespace that was removed: %v\n%s", err, out)
	}
	if len(one.paths()) != 1 {
		p.Error("the host knows that the namespace was removed")
	}
	set(before)
	one.rescan()
	p.await(p.all[:1])
}
