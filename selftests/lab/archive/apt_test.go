package archive

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestMirrorIn(t *testing.T) {
	targets := `http://one.invalid/debian-security/ bookworm-security main
http://two.invalid/debian/ bookworm-updates main
http://two.invalid/debian/ bookworm contrib
http://three.invalid/debian/ bookworm main
http://four.invalid/debian/ bookworm main
`
	for _, c := range []struct{ targets, release, want string }{
		{targets, "bookworm", "http://three.invalid/debian/"},
		{targets, "trixie", ""},
		{"http://five.invalid/debian stable main\n", "trixie", "http://five.invalid/debian"},
		{"", "bookworm", ""},
	} {
		if got := mirrorIn(c.targets, c.release); got != c.want {
			t.Errorf("the mirror for %s is %q, not %q", c.release, got, c.want)
		}
	}
}

func TestCodename(t *testing.T) {
	for text, want := range map[string]string{
		"NAME=x\nVERSION_CODENAME=bookworm\nID=debian\n": "bookworm",
		"VERSION_CODENAME=\"trixie\"":                    "trixie",
		"NAME=x\n":                                       "",
	} {
		if got := codename(text); got != want {
			t.Errorf("the codename in %q is %q", text, got)
		}
	}
}

// TestSources: apt checks every source against the archive's keys.
func TestSources(t *testing.T) {
	got := sources("http://mirror.invalid/debian/", []string{"bookworm-backports", "bookworm"})
	want := "deb [arch=amd64 signed-by=" + keyring + "] http://mirror.invalid/debian bookworm-backports main\n" +
		"deb [arch=amd64 signed-by=" + keyring + "] http://mirror.invalid/debian bookworm main\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestConfiguration: apt reads the configuration and has the expected settings.
func TestConfiguration(t *testing.T) {
	dir := t.TempDir()
	a, err := newApt(dir, "http://mirror.invalid/debian", "bookworm")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("apt-config", "-c", filepath.Join(a.dir, "apt.conf"), "dump").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, line := range []string{
		`Dir::Etc::sourcelist "` + dir + `/sources.list";`,
		`Dir::State::lists "` + dir + `/lists";`,
		`Dir::Cache "` + dir + `/cache";`,
		`Dir::Etc::sourceparts "/dev/null";`,
	} {
		if !strings.Contains(string(out), line+"\n") {
			t.Errorf("apt does not have %s", line)
		}
	}
	for _, hook := range []string{"APT::Update::Post-Invoke::", "APT::Update::Post-Invoke-Success::", "DPkg::Post-Invoke::"} {
		if strings.Contains(string(out), hook) {
			t.Errorf("apt would still run the machine's hooks %s", hook)
		}
	}
}

func TestDepends(t *testing.T) {
	text := `linux-image-7.2.12+deb13-amd64
  PreDepends: linux-base
 |Depends: dracut
  Depends: <linux-initramfs-tool>
    dracut
  Depends: linux-binary-7.2.12+deb13-amd64
  Breaks: linux-modules-0
`
	// A package after a bar is an alternative, and not one of ours.
	want := []string{"linux-base", "<linux-initramfs-tool>", "linux-binary-7.2.12+deb13-amd64"}
	if got := depends(text); !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	for name, want := range map[string]bool{
		"linux-image-6.1.0-50-amd64": true, "linux-modules-7.2.12+deb13-amd64": true, "linux-base": false, "linux-image-amd64": false,
	} {
		if kernelParts.MatchString(name) != want {
			t.Errorf("%s is part of a kernel: %v", name, !want)
		}
	}
}

func TestInstalls(t *testing.T) {
	text := `Reading package lists...
Inst libslirp0 (4.7.0-1 Debian:12.15/oldstable [amd64])
Inst qemu-system-x86 [1:7.2] (1:10.0.2+ds-2~bpo12+1 Debian Backports:oldstable-backports [amd64]) []
Conf libslirp0 (4.7.0-1 Debian:12.15/oldstable [amd64])
`
	want := []string{"libslirp0=4.7.0-1", "qemu-system-x86=1:10.0.2+ds-2~bpo12+1"}
	if got := installs(text); !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}

func TestParseLine(t *testing.T) {
	if l, err := ParseLine(""); err != nil || l != Lines()[0] || l.Name != "7" {
		t.Errorf("the default is %+v, %v", l, err)
	}
	if l, err := ParseLine("6.1"); err != nil || l.Suite != "bookworm" {
		t.Errorf("6.1 is %+v, %v", l, err)
	}
	if _, err := ParseLine("5.10"); err == nil || !strings.Contains(err.Error(), "6.12") {
		t.Errorf("5.10: %v", err)
	}
}

func TestKernelIn(t *testing.T) {
	dir := t.TempDir()
	if _, err := kernelIn(dir, Line{}); err == nil {
		t.Error("an empty directory has a kernel")
	}
	modules := filepath.Join(dir, "lib", "modules", "6.1.0-50-amd64")
	if err := os.MkdirAll(modules, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := kernelIn(dir, Line{}); err == nil {
		t.Error("modules alone are a kernel")
	}
	image := filepath.Join(modules, "vmlinuz")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := kernelIn(dir, Lines()[2])
	if err != nil || k.Version != "6.1.0-50-amd64" || k.Image != image || k.Modules != modules || k.Line.Name != "6.1" {
		t.Errorf("%+v, %v", k, err)
	}
}
