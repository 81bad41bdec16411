package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// system is a Debian system in a directory, with what the package depends on and nothing else. Its systemd is process 1 of
// namespaces of its own, with a network of its own that has an interface eth1, on a machine that seems to have no huge pages.
type system struct {
	dir string
	one int // process 1
}

// boot is the script that becomes process 1: pivot_root(8). As in containers, what is the whole machine's below /proc/sys
// cannot be written.
const boot = `
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,ro,bind proc/sys
mount -t sysfs sys sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs none sys/kernel/mm/hugepages
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=755 dev dev
for d in null zero full random urandom tty; do touch dev/$d; mount --bind /dev/$d dev/$d; done
ln -s /proc/self/fd dev/fd
mkdir dev/shm
pivot_root . mnt
umount -l /mnt
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C /lib/systemd/systemd
`

// debian makes a clean Debian 12 with the sources of this machine and a few packages, and starts its systemd.
func debian(t *testing.T, packages string) system {
	t.Helper()
	c := system{dir: filepath.Join(t.TempDir(), "root")}
	output(t, "mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", "--include="+packages, "bookworm", c.dir)
	group := newGroup(t, cgroups(t))
	// The namespace of control groups begins at the group that the process is in when it is made.
	cmd := exec.Command("unshare", "--cgroup", "sh", "-ec", boot, "sh", c.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		UseCgroupFD: true, CgroupFD: int(group.Fd()),
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.one = cmd.Process.Pid
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // and with process 1 all others
		<-ended
	})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	for state := ""; state != "running"; time.Sleep(50 * time.Millisecond) {
		select {
		case <-ended:
			t.Fatalf("systemd has ended: %s", &said)
		default:
		}
		if out, _ := c.try("systemctl is-system-running"); strings.TrimSpace(out) == "degraded" {
			t.Fatal(c.do(t, "systemctl --failed"))
		} else {
			state = strings.TrimSpace(out)
		}
	}
	c.net(t, "sh", "-ec", "ip link set lo up; ip link add eth1 type veth peer name wire; ip address add 10.79.0.1/24 dev wire; ip link set eth1 up; ip link set wire up; ip route add 224.0.0.0/4 dev wire")
	return c
}

// cgroups returns where the control groups of version 2 are.
func cgroups(t *testing.T) string {
	t.Helper()
	mounts, err := exec.Command("findmnt", "--noheadings", "--list", "--types", "cgroup2", "--output", "TARGET").Output()
	top := strings.TrimSpace(strings.SplitN(string(mounts), "\n", 2)[0])
	if err != nil || top == "" {
		t.Fatalf("find the control groups of version 2: %v", err)
	}
	return top
}

// newGroup makes a control group, and removes it at the end of the test with those below it.
func newGroup(t *testing.T, top string) *os.File {
	t.Helper()
	dir, err := os.MkdirTemp(top, "unifiedd-test-")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	t.Cleanup(func() {
		f.Close()
		var all []string
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				all = append(all, path)
			}
			return err
		})
		for _, one := range slices.Backward(all) {
			err = errors.Join(err, os.Remove(one))
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// inside returns a command in the system's namespaces.
func (c system) inside(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--all", "--target", fmt.Sprint(c.one)}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}
	return cmd
}

// do runs a shell's command in the system.
func (c system) do(t *testing.T, command string) string {
	t.Helper()
	out, err := c.try(command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

func (c system) try(command string) (string, error) {
	out, err := c.inside("sh", "-ec", command).CombinedOutput()
	return string(out), err
}

// net runs one of the machine's programs in the system's network.
func (c system) net(t *testing.T, args ...string) {
	t.Helper()
	output(t, "nsenter", append([]string{"--net", "--target", fmt.Sprint(c.one)}, args...)...)
}

// verify fails the test if systemd finds a fault in a unit. It ignores system calls that are newer than itself, and
// says so.
func (c system) verify(t *testing.T, unit string) {
	t.Helper()
	for line := range strings.Lines(c.do(t, "systemd-analyze verify --man=no "+unit+" 2>&1")) {
		if strings.Contains(line, "unifiedd") && !strings.Contains(line, "Failed to parse system call, ignoring: ") {
			t.Errorf("systemd-analyze verify says: %s", line)
		}
	}
}

// files returns the paths in the system, without those that dpkg, systemd and others keep about every installation.
func (c system) files(t *testing.T) (all []string) {
	t.Helper()
	ignored := []string{"/var/lib/dpkg", "/var/log", "/var/cache", "/var/lib/apt", "/tmp", "/var/tmp", "/run", "/proc", "/sys", "/dev", "/var/lib/systemd/catalog"}
	err := filepath.WalkDir(c.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(path, c.dir)
		if slices.Contains(ignored, rel) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(rel, "-") { // copies of /etc/passwd and others
			all = append(all, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// users returns the users of the system.
func (c system) users(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "etc/passwd"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// put copies a package into the system and returns its path there.
func (c system) put(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	target := "/opt/" + filepath.Base(name)
	if err := os.WriteFile(filepath.Join(c.dir, target), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	return target
}
