//go:build verbs && cgo

package nvmet

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
)

const (
	address = "10.79.0.1"
	nqn     = "nqn.2026-01.com.example:served"
	hostNQN = "nqn.2014-08.org.nvmexpress:uuid:4b1dbb4e-6f4b-4b0c-9a0c-2f1c8b6f0a01"
	hostID  = "4b1dbb4e-6f4b-4b0c-9a0c-2f1c8b6f0a01"
)

// initiator is the kernel's initiator, connected.
type initiator struct {
	*testing.T
	name string // nvme0
}

// connect makes the kernel connect, as nvme connect does.
func (r *rig) connect(more string) *initiator {
	r.Helper()
	i, err := r.tryConnect(more)
	r.must(err)
	return i
}

func (r *rig) tryConnect(more string) (*initiator, error) {
	r.Helper()
	if out, err := exec.Command("modprobe", "nvme_rdma").CombinedOutput(); err != nil {
		r.Fatalf("load the initiator: %v\n%s", err, out)
	}
	f, err := os.OpenFile("/dev/nvme-fabrics", os.O_RDWR, 0)
	r.must(err)
	defer f.Close()
	options := r.options(more)
	if _, err := f.WriteString(options); err != nil {
		return nil, fmt.Errorf("connect with %s: %w", options, err)
	}
	answer := make([]byte, 256)
	n, err := f.Read(answer)
	r.must(err)
	var instance, controller int
	if _, err := fmt.Sscanf(string(answer[:n]), "instance=%d,cntlid=%d", &instance, &controller); err != nil {
		r.Fatalf("%q: %v", answer[:n], err)
	}
	i := &initiator{T: r.T, name: fmt.Sprintf("nvme%d", instance)}
	r.Cleanup(i.disconnect)
	return i, nil
}

// options returns the options to connect with. Those in more replace the usual ones: the initiator
// of Linux 6.1 refuses a second hostnqn with EADDRINUSE, before it sends anything. Newer ones take
// the last.
func (r *rig) options(more string) string {
	all := []string{"transport=rdma", "traddr=" + r.host(), "trsvcid=4420", "nqn=" + nqn, "hostnqn=" + hostNQN, "hostid=" + hostID}
	for _, option := range strings.FieldsFunc(more, func(r rune) bool { return r == ',' }) {
		key, _, _ := strings.Cut(option, "=")
		all = slices.DeleteFunc(all, func(usual string) bool { return strings.HasPrefix(usual, key+"=") })
		all = append(all, option)
	}
	return strings.Join(all, ",")
}

// disconnect disconnects, if it is connected.
func (i *initiator) disconnect() {
	i.Helper()
	if err := os.WriteFile("/sys/class/nvme/"+i.name+"/delete_controller", []byte("1"), 0); err != nil && !os.IsNotExist(err) {
		i.Error(err)
	}
}

// path waits for a namespace of the controller, and returns its device. The kernel names it by the
// subsystem.
func (i *initiator) path(namespace int) (path string) {
	i.Helper()
	testenv.Wait(i, waitLimit, "the namespace", func() bool {
		all, _ := filepath.Glob("/sys/block/nvme*/nsid")
		for _, f := range all {
			name := filepath.Base(filepath.Dir(f))
			number, _ := os.ReadFile(f)
			if strings.TrimSpace(string(number)) == fmt.Sprint(namespace) && i.has(name) && !strings.Contains(name, "c") {
				path = "/dev/" + name
				_, err := os.Stat(path)
				return err == nil
			}
		}
		return false
	})
	return path
}

// has reports whether a block device belongs to the controller or to its subsystem.
func (i *initiator) has(block string) bool {
	device, err := filepath.EvalSymlinks("/sys/block/" + block + "/device")
	if err != nil {
		return false
	}
	if filepath.Base(device) == i.name {
		return true
	}
	_, err = os.Stat(filepath.Join(device, i.name))
	return err == nil
}

func (r *rig) run(name string, arguments ...string) string {
	r.Helper()
	begin := time.Now()
	out, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		r.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
	}
	r.Logf("%s took %v", filepath.Base(name), time.Since(begin).Round(100*time.Millisecond))
	return string(out)
}

// TestOnVerbs: hosts that connect over the kernel's verbs work with the target. All parts use one
// device.
func TestOnVerbs(t *testing.T) {
	labenv.Guest(t)
	r := newRig(t)
	t.Run("initiator", func(t *testing.T) { r.with(t).initiator() })
	t.Run("disturbed", func(t *testing.T) { r.with(t).disturbed() })
	t.Run("by hand", func(t *testing.T) { r.with(t).byHand() })
	t.Run("node", func(t *testing.T) { r.with(t).node() })
}

// node: a target that was started without NVMe nodes refuses to add one, and nothing changes.
func (r *rig) node() {
	first := Namespace{ID: 1, Disk: r.disk(16 << 20)}
	v := r.serve(Config{Sessions: 2, Queues: 1, Depth: 32, Capsule: 4096, Subsystems: []Subsystem{{NQN: nqn, AnyHost: true, Namespaces: []Namespace{first}}}})
	node, err := nvme.OpenTarget(nvme.TargetConfig{Path: labenv.DiskPassthrough, Force: true})
	r.must(err)
	defer func() { r.check(node.Close()) }()
	err = v.do(func() error {
		_, err := v.server.Change([]Subsystem{{NQN: nqn, AnyHost: true, Namespaces: []Namespace{first, {ID: 2, Disk: node}}}})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), labenv.DiskPassthrough+" is an NVMe node") || !strings.Contains(err.Error(), "restart the daemon") {
		r.Errorf("a node came: %v", err)
	}
	if all := v.server.NamespaceStats(); len(all) != 1 {
		r.Errorf("there are namespaces %+v", all)
	}
	v.rest()
}

// initiator: the kernel's own initiator connects, makes a file system and writes a tree. After a
// reconnect it reads the same tree.
func (r *rig) initiator() {
	v := r.serve(Config{Sessions: 8, Queues: 4, Depth: 64, Capsule: 4096, Subsystems: []Subsystem{{NQN: nqn, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: r.disk(64 << 20), UUID: [16]byte{1: 7, 15: 1}}}}}})
	i := r.connect("")
	r.discover()
	device := i.path(1)
	if !testing.Short() { // disturbed verifies, too, and each start of a program takes seconds
		r.blocks(device)
	}
	r.keepsFiles(i)
	c := &v.server.count
	r.Logf("%d commands: %d read, %d written, %d flushed; %d bytes in capsules of %d; refused %d, failed %d", c.commands.Load(), c.read.operations.Load(), c.written.operations.Load(),
		c.flushes.Load(), c.inCapsule.Load(), c.written.bytes.Load(), c.refused.Load(), c.failed.Load())
	if c.failed.Load() > 0 || c.read.bytes.Load() == 0 || c.written.bytes.Load() <= c.inCapsule.Load() || c.inCapsule.Load() == 0 || c.flushes.Load() == 0 || c.discard.Load() == 0 ||
		!testing.Short() && (c.compares.Load() != 1 || c.zeroes.Load() == 0) {
		r.Error("not all that there is was done")
	}
}

// discover makes nvme-cli list the subsystems.
func (r *rig) discover() {
	r.Helper()
	out := r.run(testenv.Tool(r, "nvme"), "discover", "-t", "rdma", "-a", r.host(), "-s", "4420", "--hostnqn", hostNQN, "--hostid", hostID)
	for _, want := range []string{nqn, "traddr:  " + r.host(), "trsvcid: 4420", "rdma_cms:    rdma-cm"} {
		if !strings.Contains(out, want) {
			r.Errorf("%q is not in what nvme discover says:\n%s", want, out)
		}
	}
}

// blocks performs every command on the block device, and reads the written data back: fio verifies
// it.
func (r *rig) blocks(device string) {
	r.Helper()
	r.run(testenv.Tool(r, "fio"), "--name=blocks", "--filename="+device, "--size=16m", "--rw=randwrite", "--bsrange=512-256k", "--bs_unaligned=0", "--blockalign=512", "--direct=1", "--iodepth=16",
		"--ioengine=libaio", "--verify=crc32c", "--verify_fatal=1", "--end_fsync=1", "--randseed=7")
	cli := testenv.Tool(r, "nvme")
	file := filepath.Join(r.TempDir(), "block")
	r.must(os.WriteFile(file, []byte(strings.Repeat("compared", 64)), 0o600))
	r.run(cli, "write", device, "-s", "8", "-c", "0", "-z", "512", "-d", file, "--force-unit-access")
	r.run(cli, "compare", device, "-s", "8", "-c", "0", "-z", "512", "-d", file)
	r.run(cli, "write-zeroes", device, "-s", "8", "-c", "0")
	if out, err := exec.Command(cli, "compare", device, "-s", "8", "-c", "0", "-z", "512", "-d", file).CombinedOutput(); err == nil || !strings.Contains(strings.ToLower(string(out)), "compar") {
		r.Errorf("zeros compare equal: %s", out)
	}
	r.run(cli, "dsm", device, "--ad", "-s", "8,64", "-b", "8,16")
	if out, err := exec.Command(cli, "read", device, "-s", "1000000000", "-c", "0", "-z", "512").CombinedOutput(); err == nil {
		r.Errorf("a block beyond the end is read: %s", out)
	}
}

// keepsFiles makes a file system on the namespace, and checks its files after the initiator has
// disconnected and connected again. It disconnects at the end.
func (r *rig) keepsFiles(i *initiator) {
	r.Helper()
	device := i.path(1)
	r.run("mkfs.ext4", "-q", "-F", device)
	dir := r.TempDir()
	r.run("mount", device, dir)
	mounted := true
	r.Cleanup(func() {
		if mounted {
			_ = exec.Command("umount", dir).Run()
		}
	})
	sums := r.tree(dir)
	r.run("umount", dir)
	i.disconnect()
	i = r.connect("")
	r.run("mount", i.path(1), dir)
	r.verify(dir, sums)
	r.run("umount", dir)
	mounted = false
	i.disconnect()
}

// tree writes files of many sizes, and returns their checksums.
func (r *rig) tree(dir string) map[string][32]byte {
	r.Helper()
	sums := make(map[string][32]byte)
	random := rand.NewChaCha8([32]byte{1})
	for n, size := range []int{0, 1, 511, 512, 4096, 4097, 65536, 1 << 20, 3<<20 + 17} {
		for copy := range 2 {
			b := make([]byte, size)
			_, _ = random.Read(b)
			name := filepath.Join(fmt.Sprintf("d%d", n), fmt.Sprintf("f%d", copy))
			r.must(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			r.must(os.WriteFile(filepath.Join(dir, name), b, 0o644))
			sums[name] = sha256.Sum256(b)
		}
	}
	return sums
}

// verify reads the files that tree wrote.
func (r *rig) verify(dir string, sums map[string][32]byte) {
	r.Helper()
	for name, want := range sums {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || sha256.Sum256(b) != want {
			r.Errorf("%s: %d bytes are not those that were written: %v", name, len(b), err)
		}
	}
}
