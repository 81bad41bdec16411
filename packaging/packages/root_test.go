package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
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

// added returns what is in the second list and not in the first.
func added(before, after []string) (all []string) {
	for _, name := range after {
		if _, found := slices.BinarySearch(before, name); !found {
			all = append(all, name)
		}
	}
	return all
}

// packagesOf builds the packages of two versions for this machine. They differ in nothing else.
func packagesOf(t *testing.T, format string) (first, second string) {
	t.Helper()
	l := built(t)
	var names [2]string
	for i, version := range []string{"1.2.3", "1.2.4"} {
		s, one := *l.source, l
		s.version = version
		one.source, one.format, one.work = &s, format, t.TempDir()
		name, err := write(one, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		names[i] = name
	}
	return names[0], names[1]
}

// TestCleanDebian: in a clean Debian 12 without huge pages the package installs and its unit runs by the commands of
// docs/how-to/install.md, updates keep what they must, and removing and purging leave nothing but the user's data.
func TestCleanDebian(t *testing.T) {
	long(t)
	c := debian(t, "systemd,passwd")
	first, second := packagesOf(t, "deb")
	name, newer := c.put(t, first), c.put(t, second)
	before := c.files(t)
	for _, line := range installs(t) {
		c.do(t, "cd /opt; editor() { true; }; "+strings.Replace(line, "unifiedd_*", "unifiedd_1.2.3*", 1))
	}
	if u := c.users(t); !strings.Contains(u, "\nunifiedd:") {
		t.Errorf("there is no user unifiedd:\n%s", u)
	}
	if mode := c.do(t, "stat -c '%a %U %G' /etc/unifiedd/unifiedd.yaml"); mode != "640 root unifiedd\n" {
		t.Errorf("the configuration is %s", mode)
	}
	c.do(t, "unifiedd check -c /etc/unifiedd/unifiedd.yaml && unifiedd version && unified-xdp-test --help && unified-nvme-test --help")
	c.verify(t, "/lib/systemd/system/unifiedd.service")
	c.judges(t)
	c.runs(t)
	c.updates(t, func() string { return c.do(t, "dpkg -i "+newer+" 2>&1") })
	c.do(t, "dpkg --remove unifiedd")
	if out, err := c.try("systemctl is-active unifiedd"); err == nil {
		t.Errorf("removing leaves a daemon: %s", out)
	}
	recorded := strings.Fields(c.do(t, "ls -d /var/lib/unifiedd/feed-*"))
	data := append([]string{"/var/lib/unifiedd"}, recorded...)
	if got, want := withoutState(added(before, c.files(t))), append([]string{"/etc/unifiedd", "/etc/unifiedd/unifiedd.yaml"}, data...); !slices.Equal(got, want) {
		t.Errorf("removing leaves %q, want %q", got, want)
	}
	c.do(t, "dpkg --purge unifiedd")
	if got := added(before, c.files(t)); !slices.Equal(got, data) {
		t.Errorf("purging leaves %q, want %q", got, data)
	}
	c.do(t, "rm /var/lib/unifiedd/feed-*")
	c.do(t, "dpkg -i "+name+" && systemctl enable --now unifiedd && dpkg --purge unifiedd")
	if got := added(before, c.files(t)); len(got) != 0 {
		t.Errorf("purging leaves %q", got)
	}
	if left, err := c.try("ls -d /run/unifiedd || systemctl is-active unifiedd"); err == nil {
		t.Errorf("purging leaves\n%s", left)
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

// judges checks that the doctor judges the packaged configuration for the unit's user, where huge pages can be reserved and
// none are.
func (c system) judges(t *testing.T) {
	t.Helper()
	const pool = "/sys/kernel/mm/hugepages/hugepages-2048kB"
	c.do(t, "systemctl stop unifiedd") // its XDP program is that of another one to the doctor
	for _, one := range []struct{ made, want string }{
		{"mkdir " + pool + "; for f in free nr resv; do echo 0 >" + pool + "/${f}_hugepages; done", "0 free of 0, 129 needed, and user unifiedd, who starts the daemon, may not reserve 129: the region is on ordinary pages then"},
		{"rm -r " + pool, "CONFIG_HUGETLBFS"},
	} {
		c.do(t, one.made)
		said, err := c.try("unifiedd doctor -c /etc/unifiedd/unifiedd.yaml")
		if err != nil || !strings.Contains(said, one.want) {
			t.Errorf("the doctor does not say %q of a configuration that starts (%v):\n%s", one.want, err, said)
		}
	}
}

// runs starts the unit, unless it runs, and checks that it records with the unit's user, capabilities and sandbox.
func (c system) runs(t *testing.T) {
	t.Helper()
	c.do(t, "systemctl enable --now unifiedd")
	c.records(t)
	if mode := c.do(t, "stat -c '%a %U %G' /var/lib/unifiedd"); mode != "750 unifiedd unifiedd\n" {
		t.Errorf("/var/lib/unifiedd is %s", mode)
	}
	status := c.do(t, "cat /proc/$(pidof unifiedd)/status; echo unifiedd $(id -u unifiedd)")
	_, user, _ := strings.Cut(status, "\nunifiedd ")
	mask := uint64(0)
	for _, n := range given {
		mask |= 1 << n
	}
	id := "\t" + strings.TrimSpace(user)
	for _, want := range []string{"Uid:" + strings.Repeat(id, 4), fmt.Sprintf("CapBnd:\t%016x", mask), fmt.Sprintf("CapEff:\t%016x", mask), "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want+"\n") {
			t.Errorf("the daemon has not %q:\n%s", want, status)
		}
	}
	c.do(t, "unifiedd status --check feed || true; systemctl reload unifiedd")
	said := c.do(t, "journalctl --unit unifiedd --output cat")
	if starts := strings.Count(said, `msg="flow runs"`); starts == 0 || strings.Count(said, "there are no huge pages for the region") != starts || strings.Contains(said, "level=ERROR") {
		t.Errorf("the log says\n%s", said)
	}
	if out, err := c.try("setpriv --reuid 65534 --regid 65534 --clear-groups unifiedd status"); err == nil {
		t.Errorf("another user may ask:\n%s", out)
	}
}

// records waits until the daemon has recorded a packet that comes now.
func (c system) records(t *testing.T) {
	t.Helper()
	word := fmt.Sprint("word-", time.Now().UnixNano())
	for found := false; !found; {
		c.net(t, "bash", "-c", "echo "+word+" >/dev/udp/239.1.2.3/5000")
		if out, err := c.try("systemctl is-active unifiedd"); err != nil {
			t.Fatalf("the unit is %s%s", out, c.do(t, "journalctl --unit unifiedd --output cat"))
		}
		_, err := c.try("grep -qr " + word + " /var/lib/unifiedd")
		found = err == nil
	}
}

// updates checks what an update does while the daemon runs, with a configuration that it refuses, and while it does not run.
func (c system) updates(t *testing.T, update func() string) {
	t.Helper()
	const old = "still runs the old program"
	pid := func() string { return c.do(t, "systemctl show --property MainPID unifiedd") }
	for _, one := range []struct {
		prepare  string
		restarts bool
		says     bool
	}{
		{"echo '# mine' >>/etc/unifiedd/unifiedd.yaml", true, false},
		{"echo 'nonsense: 1' >>/etc/unifiedd/unifiedd.yaml", false, true},
		{"systemctl stop unifiedd", false, false},
	} {
		c.do(t, one.prepare)
		user, text, before := c.users(t), c.do(t, "stat -c '%a %U %G' /etc/unifiedd/unifiedd.yaml; cat /etc/unifiedd/unifiedd.yaml"), pid()
		said := update()
		if restarted := pid() != before; restarted != one.restarts || strings.Contains(said, old) != one.says {
			t.Errorf("an update after %q has restarted the daemon: %v, and said\n%s", one.prepare, restarted, said)
		}
		if c.users(t) != user || c.do(t, "stat -c '%a %U %G' /etc/unifiedd/unifiedd.yaml; cat /etc/unifiedd/unifiedd.yaml") != text {
			t.Errorf("an update after %q has changed the users or the configuration", one.prepare)
		}
		if one.restarts {
			c.records(t)
		}
	}
	c.do(t, "sed -i /nonsense/d /etc/unifiedd/unifiedd.yaml; systemctl restart unifiedd")
	c.records(t)
}

// withoutState leaves out what systemd's helper keeps about a unit of a package that was not purged.
func withoutState(all []string) []string {
	return slices.DeleteFunc(all, func(name string) bool {
		return strings.HasPrefix(name, "/var/lib/systemd/deb-systemd-helper-") || strings.HasPrefix(name, "/etc/systemd/system/")
	})
}

// TestLintian: lintian finds no errors. The library has no file of shlibs: packages that are built with it say themselves what
// they depend on.
func TestLintian(t *testing.T) {
	long(t)
	name, _ := packagesOf(t, "deb")
	s, err := newSource("../..", "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	of, err := s.libraries(runtime.GOARCH, "deb", t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--allow-root", "--fail-on", "error", "--tag-display-limit", "0", "--suppress-tags", "no-shlibs", name}, of...)
	out, err := exec.Command("lintian", args...).CombinedOutput()
	if err != nil || bytes.HasPrefix(out, []byte("E:")) || bytes.Contains(out, []byte("\nE:")) {
		t.Errorf("lintian: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestCleanRPM: rpm does the same in a system of its own, and erases the package.
func TestCleanRPM(t *testing.T) {
	long(t)
	c := debian(t, "systemd,passwd,rpm")
	first, second := packagesOf(t, "rpm")
	name, newer := c.put(t, first), c.put(t, second)
	before := c.files(t)
	rpm := func(command string) string { return c.do(t, "rpm --nodeps "+command+" 2>&1") }
	rpm("-i " + name)
	if u := c.users(t); !strings.Contains(u, "\nunifiedd:") {
		t.Errorf("there is no user unifiedd:\n%s", u)
	}
	if out := c.do(t, "rpm -V --nodeps --nogroup unifiedd"); out != "" {
		t.Errorf("rpm -V: %s", out)
	}
	c.verify(t, "/usr/lib/systemd/system/unifiedd.service")
	c.judges(t)
	c.runs(t)
	c.updates(t, func() string { return rpm("-U --force " + newer) })
	rpm("-e unifiedd")
	if out, err := c.try("systemctl is-active unifiedd"); err == nil {
		t.Errorf("erasing leaves a daemon: %s", out)
	}
	left := func(want ...string) {
		t.Helper()
		shared := []string{"/usr/share/fish", "/usr/share/fish/vendor_completions.d", "/usr/share/zsh/site-functions"} // of other packages
		got := slices.DeleteFunc(added(before, c.files(t)), func(name string) bool {
			return strings.Contains(name, "/.rpmdb") || slices.Contains(shared, name)
		})
		if !slices.Equal(got, want) {
			t.Errorf("erasing leaves %q, want %q", got, want)
		}
	}
	recorded := strings.Fields(c.do(t, "ls -d /var/lib/unifiedd/feed-*"))
	left(append([]string{"/etc/unifiedd", "/etc/unifiedd/unifiedd.yaml.rpmsave", "/var/lib/unifiedd"}, recorded...)...)
	c.do(t, "rm -r /etc/unifiedd /var/lib/unifiedd")
	rpm("-i " + name)
	rpm("-e unifiedd")
	left("/var/lib/unifiedd")
}
