package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"golang.org/x/sys/unix"
)

// The capabilities that docs/how-to/containers.md names, by their numbers in linux/capability.h.
var given = []int{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_IPC_LOCK, unix.CAP_PERFMON, unix.CAP_BPF}

// makeImage makes an image of a format for this machine, and returns the layout and the image.
func makeImage(t *testing.T, format string) (dir string, image v1.Image) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "image")
	if _, err := run(options{root: root, out: dir, version: "1.2.3", arches: []string{runtime.GOARCH}, formats: []string{format}}); err != nil {
		t.Fatal(err)
	}
	index, err := ocilayout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	if image, err = index.Image(manifest.Manifests[0].Digest); err != nil {
		t.Fatal(err)
	}
	return dir, image
}

// unpackImage unpacks the root file system.
func unpackImage(t *testing.T, image v1.Image) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "root")
	tree := mutate.Extract(image)
	defer tree.Close()
	for r := tar.NewReader(tree); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(root, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(name, os.FileMode(h.Mode))
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, name)
		default:
			var text []byte
			if text, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(name, text, os.FileMode(h.Mode))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// box is a container: a root file system, a network of its own, and a few capabilities.
type box struct {
	root  string
	caps  []int
	group *os.File // control group of version 2; nil: that of the test
	setup []string // commands in the network, before the program
}

// start starts the image's program in a box, and returns it with its output.
func (b box) start(t *testing.T, args ...string) (cmd *exec.Cmd, out *bytes.Buffer, during func(args ...string) error) {
	t.Helper()
	out = new(bytes.Buffer)
	cmd = &exec.Cmd{Path: "/usr/bin/unifiedd", Args: append([]string{"unifiedd"}, args...), Dir: "/", Env: []string{"PATH=/usr/bin", "container=oci"}, Stdout: out, Stderr: out}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: b.root, Pdeathsig: 0}
	if b.group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(b.group.Fd())
	}
	work, started := make(chan func()), make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends, and its namespaces with it
		err := b.enter()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		for f := range work {
			f()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(work) })
	return cmd, out, func(args ...string) error {
		result := make(chan error)
		work <- func() { result <- exec.Command(args[0], args[1:]...).Run() }
		return <-result
	}
}

// enter makes the calling thread's mounts, network and capabilities those of the box.
func (b box) enter() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	for _, dir := range []string{"proc", "sys", "dev"} {
		if err := unix.Mount("/"+dir, filepath.Join(b.root, dir), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := unix.Mount("tmpfs", filepath.Join(b.root, "run", "unifiedd"), "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount /run/unifiedd: %w", err)
	}
	for _, line := range b.setup {
		if text, err := exec.Command("sh", "-ec", line).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, text)
		}
	}
	for n := range 64 { // what a program started from here may get at most: capabilities(7)
		if !slices.Contains(b.caps, n) && unix.Prctl(unix.PR_CAPBSET_READ, uintptr(n), 0, 0, 0) == nil {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("drop capability %d: %w", n, err)
			}
		}
	}
	return nil
}

// say runs the program to its end, and returns its output and whether it succeeded.
func (b box) say(t *testing.T, args ...string) (string, bool) {
	t.Helper()
	cmd, out, _ := b.start(t, args...)
	err := cmd.Wait()
	return out.String(), err == nil
}

// configure writes the configuration of a box.
func (b box) configure(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.root, "etc", "unifiedd", "unifiedd.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const settings = `
region: {size: 16MiB, extent: 512KiB, extents: 4, pages: ordinary}
flows:
  - name: capture
    from: {interface: card, ring: 64}
    to: {file: /var/lib/unifiedd/capture, segment: {size: 2MiB}, prepare: none}
`

// wires makes the interface that the box captures from.
var wires = []string{"ip link add card type veth peer name wire", "ip link set lo up", "ip address add 10.79.0.1/24 dev wire", "ip link set wire up", "ip link set card up"}

// TestImage: the image is a valid OCI layout, the same each time; its program captures with the documented
// capabilities and no others, and the doctor names what a container lacks.
func TestImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	dir, image := makeImage(t, imageStatic)
	again, _ := makeImage(t, imageStatic)
	a, errA := os.ReadFile(filepath.Join(dir, "index.json"))
	b, errB := os.ReadFile(filepath.Join(again, "index.json"))
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("two images of one tree differ: %v, %v\n%s\n%s", errA, errB, a, b)
	}
	root := unpackImage(t, image)
	t.Run("captures", func(t *testing.T) { captures(t, root) })
	t.Run("doctor", func(t *testing.T) {
		said, _ := box{root: root, caps: given}.say(t, "doctor")
		for _, want := range []string{"container=oci", "network               of its own (lo)"} {
			if !strings.Contains(said, want) {
				t.Errorf("the doctor does not say %q:\n%s", want, said)
			}
		}
		if strings.Contains(said, "--cap-add") {
			t.Errorf("the doctor lacks capabilities:\n%s", said)
		}
		if said, well := (box{root: root}).say(t, "doctor"); well || !strings.Contains(said, "run the container with --cap-add NET_ADMIN") {
			t.Errorf("without capabilities the doctor says (%v):\n%s", well, said)
		}
	})
	t.Run("huge pages", func(t *testing.T) { limitedPages(t, root) })
}

// captures runs the daemon in a box, and sends it packets.
func captures(t *testing.T, root string) {
	b := box{root: root, caps: given, setup: wires}
	b.configure(t, settings)
	cmd, out, during := b.start(t, "run", "-c", "/etc/unifiedd/unifiedd.yaml")
	ended, result := make(chan struct{}), error(nil)
	go func() {
		result = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	bytesOf := func() (n int64) {
		names, _ := filepath.Glob(filepath.Join(root, "var", "lib", "unifiedd", "capture-*"))
		for _, name := range names {
			if text, err := os.ReadFile(name); err == nil {
				n += int64(bytes.Count(text, []byte{10, 79, 0, 9})) // asked for by ARP
			}
		}
		return n
	}
	for bytesOf() == 0 {
		select {
		case <-ended:
			t.Fatalf("nothing was captured: %v\n%s", result, out)
		default:
		}
		_ = during("ping", "-c", "1", "-W", "1", "10.79.0.9") // nobody answers
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	mask := uint64(0)
	for _, n := range given {
		mask |= 1 << n
	}
	if want := fmt.Sprintf("CapBnd:\t%016x\n", mask); !strings.Contains(string(text), want) {
		t.Errorf("the capabilities are not %s:\n%s", want, text)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if <-ended; result != nil {
		t.Errorf("the daemon ended with %v\n%s", result, out)
	}
}

// limitedPages runs the doctor and the daemon in a control group that may take two huge pages.
func limitedPages(t *testing.T, root string) {
	group := controlGroup(t)
	if err := os.WriteFile(filepath.Join(group.Name(), "hugetlb.2MB.max"), []byte("4194304"), 0); err != nil {
		t.Fatal(err)
	}
	b := box{root: root, caps: given, group: group, setup: wires}
	b.configure(t, strings.Replace(settings, "pages: ordinary", "pages: 2MiB", 1))
	said, well := b.say(t, "doctor", "-c", "/etc/unifiedd/unifiedd.yaml")
	if well || !strings.Contains(said, "2 more may be taken, 9 needed") || !strings.Contains(said, "hugetlb.2MB.max") {
		t.Errorf("the doctor says (%v):\n%s", well, said)
	}
	said, well = b.say(t, "run", "-c", "/etc/unifiedd/unifiedd.yaml")
	if well || !strings.Contains(said, "the control group may take 2 more") {
		t.Errorf("the daemon says (%v):\n%s", well, said)
	}
}

// controlGroup makes a control group with the controller of huge pages, and removes it at the end of the test.
func controlGroup(t *testing.T) *os.File {
	t.Helper()
	top := cgroups(t)
	has := func(file string) bool {
		text, _ := os.ReadFile(filepath.Join(top, file))
		return slices.Contains(strings.Fields(string(text)), "hugetlb")
	}
	if !has("cgroup.controllers") {
		t.Skip("the kernel has no controller of huge pages in version 2")
	}
	if !has("cgroup.subtree_control") {
		control := filepath.Join(top, "cgroup.subtree_control")
		if err := os.WriteFile(control, []byte("+hugetlb"), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.WriteFile(control, []byte("-hugetlb"), 0) }) // another group may have come to need it
	}
	return newGroup(t, top)
}

// TestArchive: tar reads layers and images to their end.
func TestArchive(t *testing.T) {
	text, err := new(source).archive([]item{{name: "dir/file", mode: 0o644, text: []byte("text")}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if list := output(t, "tar", "-t", "-f", name); list != "dir/\ndir/file\n" {
		t.Errorf("the archive has\n%s", list)
	}
}

// TestImageWithRDMA: the libraries that the program opens are in the image.
func TestImageWithRDMA(t *testing.T) {
	long(t)
	_, image := makeImage(t, imageVerbs)
	root := unpackImage(t, image)
	said, _ := box{root: root, caps: given}.say(t, "doctor")
	if !regexp.MustCompile(`libibverbs +(there|list RDMA devices: not supported by the running kernel)`).MatchString(said) {
		t.Errorf("the doctor says:\n%s", said)
	}
}
