package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPackageVersion: versions of packages begin with a digit, and increase from commit to commit.
func TestPackageVersion(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	ordered := []struct{ stamp, want string }{
		{"abc1234", "0~git20260504030201.abc1234"},
		{"before-house-2-gabc1234", "0~git20260504030201.before.house.2.gabc1234"},
		{"1.2.0-rc1", "1.2.0~rc1"},
		{"1.2.0", "1.2.0"},
		{"v1.2.0-4-gabc1234", "1.2.0+4.gabc1234"},
		{"v1.2.0-4-gabc1234-dirty", "1.2.0+4.gabc1234+dirty"},
		{"v1.2.1", "1.2.1"},
	}
	for i, c := range ordered {
		got := packageVersion(c.stamp, at)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.stamp, got, c.want)
		}
		if i > 1 {
			if err := exec.Command("dpkg", "--compare-versions", packageVersion(ordered[i-1].stamp, at), "lt", got).Run(); err != nil {
				t.Errorf("%s is not newer than %s for dpkg", got, ordered[i-1].stamp)
			}
		}
	}
}

// TestConfigurationPage: the page has every key of the document, and no table that is too wide for a terminal.
func TestConfigurationPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	p := pages{source: &source{at: time.Now(), stamp: "1"}}
	page := string(p.page("unifiedd.yaml", 5, configuration(string(text))))
	if strings.Contains(page, "\n.TS\n") {
		t.Error("the page has a table")
	}
	for line := range strings.Lines(string(text)) {
		key, isRow := strings.CutPrefix(line, "| `")
		if key, _, _ = strings.Cut(key, "`"); isRow && !strings.Contains(page, key) {
			t.Errorf("the page does not have %s", key)
		}
	}
	for _, want := range []string{"an interface to a file or a device: records packets", "(default: 256MiB)"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(page, "](") || strings.Contains(page, "packaging/unifiedd.yaml") {
		t.Error("the page has links to files that are not there")
	}
}

// built are the parts of the packages for this machine, built once.
func built(t *testing.T) layout {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSource(root, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	l := layout{source: s, arch: runtime.GOARCH, bin: filepath.Join(work, "bin"), pages: pages{source: s, bin: filepath.Join(work, "bin"), dir: filepath.Join(work, "pages")}}
	if err := s.compile(l.arch, l.bin); err != nil {
		t.Fatal(err)
	}
	if err := l.pages.make(); err != nil {
		t.Fatal(err)
	}
	if l.licenses, err = s.licenses(l.bin); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestPackages: what is in the packages, and that they have the same bytes when they are made again, at
// another time, with another umask, in another directory.
func TestPackages(t *testing.T) {
	l := built(t)
	for _, format := range []string{"deb", "rpm"} {
		var made [2]string
		for i := range made {
			again := l
			again.format, again.work = format, t.TempDir()
			before := syscall.Umask([]int{0o022, 0o077}[i])
			name, err := write(again, t.TempDir())
			syscall.Umask(before)
			if err != nil {
				t.Fatal(err)
			}
			made[i] = name
			time.Sleep(1100 * time.Millisecond) // times in packages are in seconds
		}
		a, errA := os.ReadFile(made[0])
		b, errB := os.ReadFile(made[1])
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("two packages of the same tree differ: %s, %d and %d bytes, %v, %v", format, len(a), len(b), errA, errB)
		}
		if format == "deb" {
			checkDeb(t, l, made[0])
		} else {
			checkRPM(t, made[0])
		}
	}
}

// output runs a program and returns what it prints.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// wanted are files that both packages have.
var wanted = []string{
	"/usr/bin/unifiedd", "/usr/bin/unified-xdp-test", "/usr/bin/unified-nvme-test", "/usr/bin/unified-rdma-test", "/usr/bin/unified-flow-test", "/usr/bin/unified-tick-test",
	"/usr/lib/sysusers.d/unifiedd.conf", "/usr/lib/tmpfiles.d/unifiedd.conf", "/etc/unifiedd/unifiedd.yaml", "/usr/share/bash-completion/completions/unifiedd",
	"/usr/share/fish/vendor_completions.d/unifiedd.fish", "/usr/share/man/man1/unifiedd.1.gz", "/usr/share/man/man1/unifiedd-report.1.gz",
	"/usr/share/man/man1/unified-xdp-test.1.gz", "/usr/share/man/man5/unifiedd.yaml.5.gz", "/usr/share/doc/unifiedd/copyright", "/usr/share/doc/unifiedd/changelog.gz",
	"/usr/share/doc/unifiedd/reference/configuration.md", "/usr/share/doc/unifiedd/licenses/unifiedd/LICENSE", "/usr/share/doc/unifiedd/licenses/go/LICENSE",
}

func checkDeb(t *testing.T, l layout, name string) {
	t.Helper()
	dir := t.TempDir()
	output(t, "dpkg-deb", "-x", name, dir)
	output(t, "dpkg-deb", "-e", name, filepath.Join(dir, "DEBIAN"))
	for _, path := range append(wanted, "/lib/systemd/system/unifiedd.service", "/usr/share/zsh/vendor-completions/_unifiedd", "/usr/share/doc/unifiedd/changelog.Debian.gz") {
		if _, err := os.Stat(filepath.Join(dir, path)); err != nil {
			t.Errorf("the deb: %v", err)
		}
	}
	for line := range strings.Lines(output(t, "dpkg-deb", "-c", name)) {
		if strings.HasSuffix(line, "/unifiedd.yaml\n") && strings.Contains(line, "/etc/") && !strings.HasPrefix(line, "-rw-r-----") {
			t.Errorf("the configuration, which may have passwords: %s", line)
		}
		if f := strings.Fields(line); f[1] != "root/root" || f[0][5] == 'w' || f[0][8] == 'w' {
			t.Errorf("the deb has %s", line)
		}
	}
	fields := output(t, "dpkg-deb", "-f", name)
	for _, want := range []string{"Package: unifiedd\n", "Version: 1.2.3-1\n", "Suggests: rdma-core", "Depends: libc6 (>= 2.", "Architecture: " + l.arch + "\n"} {
		if !strings.Contains(fields, want) {
			t.Errorf("the deb has no %q in\n%s", want, fields)
		}
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "DEBIAN", "conffiles")); string(text) != "/etc/unifiedd/unifiedd.yaml\n" {
		t.Errorf("conffiles: %q", text)
	}
	unit, _ := os.ReadFile(filepath.Join(dir, "lib/systemd/system/unifiedd.service"))
	if !bytes.Contains(unit, []byte("ExecStart=/usr/bin/unifiedd run")) || bytes.Contains(unit, []byte("@")) {
		t.Errorf("the unit does not start /usr/bin/unifiedd:\n%.600s", unit)
	}
	md5 := exec.Command("md5sum", "--quiet", "-c", "DEBIAN/md5sums")
	md5.Dir = dir
	if out, err := md5.CombinedOutput(); err != nil {
		t.Errorf("md5sums: %v\n%s", err, out)
	}
	checkPrograms(t, l, dir)
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		output(t, "sh", "-n", filepath.Join(dir, "DEBIAN", script))
	}
}

// checkPrograms checks the programs of an unpacked package, their pages and the licenses of what they link.
func checkPrograms(t *testing.T, l layout, dir string) {
	t.Helper()
	if got := output(t, filepath.Join(dir, "usr/bin/unifiedd"), "version"); !strings.Contains(got, "1.2.3") {
		t.Errorf("version prints %s", got)
	}
	commands := output(t, filepath.Join(dir, "usr/bin/unifiedd"), "--help")
	_, commands, _ = strings.Cut(commands, "Available Commands:\n")
	commands, _, _ = strings.Cut(commands, "\n\n")
	n := 0
	for line := range strings.Lines(commands) {
		name := strings.Fields(line)[0]
		if name == "help" {
			continue
		}
		n++
		if _, err := os.Stat(filepath.Join(dir, "usr/share/man/man1/unifiedd-"+name+".1.gz")); err != nil {
			t.Errorf("command without a manual page: %v", err)
		}
	}
	if n < 10 {
		t.Errorf("found %d commands", n)
	}
	for _, program := range []string{"unifiedd", "unified-xdp-test"} {
		path := filepath.Join(dir, "usr/bin", program)
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range info.Deps {
			found, _ := filepath.Glob(filepath.Join(dir, "usr/share/doc/unifiedd/licenses", m.Path, "*"))
			if len(found) == 0 {
				t.Errorf("%s links %s, whose license is not there", program, m.Path)
			}
			if strings.Contains(m.Path, "nfpm") || strings.Contains(m.Path, "md2man") {
				t.Errorf("%s links %s", program, m.Path)
			}
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, here := range []string{l.root + "/", l.bin} {
			if bytes.Contains(raw, []byte(here)) {
				t.Errorf("%s has a path of the machine that built it: %s", program, here)
			}
		}
		if !slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-tags" && s.Value == "verbs" }) {
			t.Errorf("%s was built without RDMA: %v", program, info.Settings)
		}
	}
}

func checkRPM(t *testing.T, name string) {
	t.Helper()
	rpm, err := exec.LookPath("rpm")
	if err != nil {
		t.Fatalf("look for rpm: %v (install the test programs: scripts/setup.sh demo test)", err)
	}
	ask := func(args ...string) string {
		return output(t, rpm, append([]string{"--dbpath", t.TempDir(), "-p", name}, args...)...)
	}
	list := strings.Split(ask("-ql"), "\n")
	for _, path := range append(wanted, "/usr/lib/systemd/system/unifiedd.service", "/usr/share/zsh/site-functions/_unifiedd") {
		if !slices.Contains(list, path) {
			t.Errorf("the rpm has no %s", path)
		}
	}
	about := ask("-qi") + ask("-qR") + ask("-q", "--suggests") + "config: " + ask("-qc")
	for _, want := range []string{"Version     : 1.2.3", "rdma-core", "glibc >= 2.", "config: /etc/unifiedd/unifiedd.yaml\n", "Build Host  : localhost"} {
		if !strings.Contains(about, want) {
			t.Errorf("the rpm has no %q in\n%s", want, about)
		}
	}
	for line := range strings.Lines(ask("-qlv")) {
		if f := strings.Fields(line); len(f) > 3 && (f[2] != "root" || f[3] != "root" || f[0][5] == 'w' || f[0][8] == 'w') {
			t.Errorf("the rpm has %s", line)
		}
	}
	if out := output(t, rpm, "--dbpath", t.TempDir(), "-K", "--nosignature", name); !strings.Contains(out, "digests OK") {
		t.Errorf("rpm -K: %s", out)
	}
	if scripts := ask("-q", "--scripts"); !strings.Contains(scripts, "systemd-sysusers unifiedd.conf") {
		t.Errorf("the rpm has these scripts:\n%s", scripts)
	}
}

// TestGlibcRefuses: a program that needs another library than that of C is an error, since the packages
// would not depend on it.
func TestGlibcRefuses(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "m.c")
	if err := os.WriteFile(source, []byte("#include <math.h>\nint main(int c, char **v) { return (int)cos(c); }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	output(t, "gcc", "-o", filepath.Join(bin, "m"), source, "-lm")
	if v, err := glibc(bin); err == nil || !strings.Contains(err.Error(), "libm.so.6") {
		t.Errorf("%q, %v", v, err)
	}
}
