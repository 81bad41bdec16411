package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// long skips the test unless make test-long SUITE=packages asks for it.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("UNIFIEDD_PACKAGES") == "" {
		t.Skip("short: make test-long SUITE=packages installs packages in clean systems")
	}
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: run it with sudo")
	}
}

// copyTree copies what git has of a tree.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = from
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(names), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			continue // a link to a directory, or removed
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// clean is a Debian system in a directory, with what the package depends on and nothing else.
type clean struct{ dir string }

// debian makes a clean Debian 12 with the sources of this machine.
func debian(t *testing.T) clean {
	t.Helper()
	c := clean{filepath.Join(t.TempDir(), "root")}
	output(t, "mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", "--include=systemd,passwd", "bookworm", c.dir)
	return c
}

// do runs a command in the system, with its own processes, mounts, and an interface eth1.
func (c clean) do(t *testing.T, command string) string {
	t.Helper()
	out, err := c.try(command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

func (c clean) try(command string) (string, error) {
	script := `ip link add eth1 type veth peer name eth2 && ip link set eth1 up && ip link set eth2 up && mount -t proc proc "$0/proc" && mount -t sysfs sys "$0/sys" && mount --rbind /dev "$0/dev" && exec chroot "$0" /bin/sh -c "$1"`
	cmd := exec.Command("unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "sh", "-ec", script, c.dir, command)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "SYSTEMD_OFFLINE=1"} // systemd does not run
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// verify fails the test if systemd finds a fault in a unit. It ignores system calls that are newer than itself, and
// says so.
func (c clean) verify(t *testing.T, unit string) {
	t.Helper()
	for line := range strings.Lines(c.do(t, "systemd-analyze verify --man=no "+unit+" 2>&1")) {
		if strings.Contains(line, "unifiedd") && !strings.Contains(line, "Failed to parse system call, ignoring: ") {
			t.Errorf("systemd-analyze verify says: %s", line)
		}
	}
}

// files returns the paths in the system, without those that dpkg and others keep about every installation.
func (c clean) files(t *testing.T) (all []string) {
	t.Helper()
	ignored := []string{"/var/lib/dpkg", "/var/log", "/var/cache", "/var/lib/apt", "/tmp", "/run", "/proc", "/sys", "/dev", "/var/lib/systemd/catalog"}
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
	return all
}

// users returns the users of the system.
func (c clean) users(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "etc/passwd"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// put copies a package into the system and returns its path there.
func (c clean) put(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	target := "/tmp/" + filepath.Base(name)
	if err := os.WriteFile(filepath.Join(c.dir, target), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	return target
}

// added returns what is in the second list and not in the first.
func added(before, after []string) (all []string) {
	for _, name := range after {
		if _, found := slices.BinarySearch(before, name); !found {
			all = append(all, name)
		}
	}
	return all
}

// packageOf builds a package for this machine.
func packageOf(t *testing.T, format string) string {
	t.Helper()
	names, err := run(options{root: "../..", out: t.TempDir(), version: "1.2.3", arches: []string{runtime.GOARCH}, formats: []string{format}})
	if err != nil {
		t.Fatal(err)
	}
	return names[0]
}

// TestCleanDebian: in a clean Debian 12 the package installs by the commands of docs/how-to/install.md, its programs run, the unit is valid, and
// removing and purging leave nothing but the user's data.
func TestCleanDebian(t *testing.T) {
	long(t)
	c := debian(t)
	name := c.put(t, packageOf(t, "deb"))
	before := c.files(t)
	slices.Sort(before)
	install := func() { c.do(t, "dpkg -i "+name) }
	for _, line := range installs(t) {
		if out, err := c.try("cd /tmp; editor() { true; }; " + line); err != nil && !strings.Contains(out, "has not been booted with systemd") {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	if links := c.do(t, "ls /etc/systemd/system/multi-user.target.wants"); !strings.Contains(links, "unifiedd.service") {
		t.Errorf("the unit is not enabled: %s", links)
	}
	c.do(t, "systemctl disable unifiedd")
	if u := c.users(t); !strings.Contains(u, "\nunifiedd:") {
		t.Errorf("there is no user unifiedd:\n%s", u)
	}
	info := c.do(t, "stat -c '%a %U %G' /var/lib/unifiedd")
	if info != "750 unifiedd unifiedd\n" {
		t.Errorf("/var/lib/unifiedd is %s", info)
	}
	if mode := c.do(t, "stat -c '%a %U %G' /etc/unifiedd/unifiedd.yaml"); mode != "640 root unifiedd\n" {
		t.Errorf("the configuration is %s", mode)
	}
	if out, err := c.try("unifiedd doctor"); !strings.Contains(out, "kernel") || !strings.Contains(out, "memory") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	c.do(t, "unifiedd check -c /etc/unifiedd/unifiedd.yaml && unifiedd version && unified-xdp-test --help && unified-nvme-test --help")
	c.verify(t, "/lib/systemd/system/unifiedd.service")
	// With data, purging leaves the data and its owner.
	c.do(t, "echo packets >/var/lib/unifiedd/feed-1.pcapng; chown unifiedd: /var/lib/unifiedd/feed-1.pcapng; echo '# mine' >>/etc/unifiedd/unifiedd.yaml")
	install() // an update keeps the user's configuration
	if out := c.do(t, "tail -n 1 /etc/unifiedd/unifiedd.yaml"); out != "# mine\n" {
		t.Errorf("an update changed the configuration: %s", out)
	}
	c.do(t, "dpkg --remove unifiedd")
	after := c.files(t)
	if got, want := added(before, after), []string{"/etc/unifiedd", "/etc/unifiedd/unifiedd.yaml", "/var/lib/unifiedd", "/var/lib/unifiedd/feed-1.pcapng"}; !slices.Equal(withoutState(got), want) {
		t.Errorf("removing leaves %q, want %q", got, want)
	}
	c.do(t, "dpkg --purge unifiedd")
	if got, want := added(before, c.files(t)), []string{"/var/lib/unifiedd", "/var/lib/unifiedd/feed-1.pcapng"}; !slices.Equal(got, want) {
		t.Errorf("purging leaves %q, want %q", got, want)
	}
	c.do(t, "rm /var/lib/unifiedd/feed-1.pcapng")
	install()
	c.do(t, "dpkg --purge unifiedd")
	if got := added(before, c.files(t)); len(got) != 0 {
		t.Errorf("purging leaves %q", got)
	}
	if u := c.users(t); !strings.Contains(u, "\nunifiedd:") {
		t.Errorf("purging removes the user, whose files elsewhere the next user gets:\n%s", u)
	}
}

// installs are the commands of docs/how-to/install.md.
func installs(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/how-to/install.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\$ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	if len(all) < 4 {
		t.Fatalf("the document has the commands %q", all)
	}
	return all
}

// withoutState leaves out what systemd's helper keeps about a unit of a package that was not purged.
func withoutState(all []string) []string {
	return slices.DeleteFunc(all, func(name string) bool {
		return strings.HasPrefix(name, "/var/lib/systemd/deb-systemd-helper-") || name == "/etc/systemd/system/unifiedd.service"
	})
}

// TestLintian: lintian finds no errors.
func TestLintian(t *testing.T) {
	long(t)
	out, err := exec.Command("lintian", "--allow-root", "--fail-on", "error", "--tag-display-limit", "0", packageOf(t, "deb")).CombinedOutput()
	if err != nil || bytes.HasPrefix(out, []byte("E:")) || bytes.Contains(out, []byte("\nE:")) {
		t.Errorf("lintian: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestCleanRPM: rpm installs the package in a system of its own, and erases it.
func TestCleanRPM(t *testing.T) {
	long(t)
	c := debian(t) // for a shell, and the programs that the scripts call
	name := packageOf(t, "rpm")
	before := c.files(t)
	slices.Sort(before)
	rpm := func(args ...string) string {
		return output(t, "rpm", append([]string{"--root", c.dir, "--nodeps"}, args...)...)
	}
	rpm("-i", name)
	if u := c.users(t); !strings.Contains(u, "\nunifiedd:") {
		t.Errorf("there is no user unifiedd:\n%s", u)
	}
	if out := output(t, "rpm", "--root", c.dir, "-V", "--nodeps", "--nogroup", "unifiedd"); out != "" {
		t.Errorf("rpm -V: %s", out)
	}
	c.verify(t, "/usr/lib/systemd/system/unifiedd.service")
	c.do(t, "unifiedd version")
	rpm("-e", "unifiedd")
	shared := []string{"/usr/share/fish", "/usr/share/fish/vendor_completions.d", "/usr/share/zsh/site-functions"} // of other packages
	for _, left := range added(before, c.files(t)) {
		if !strings.Contains(left, "/rpm") && left != "/var/lib/unifiedd" && !strings.Contains(left, "/.rpmdb") && !slices.Contains(shared, left) {
			t.Errorf("erasing leaves %s", left)
		}
	}
}
