package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestLibraryPackages: a program is built with what the two packages of the C library have, as its documents say, and the
// packages have the same bytes when they are made again.
func TestLibraryPackages(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSource(root, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"deb", "rpm"} {
		var made [2][]string
		for i := range made {
			if made[i], err = s.libraries(runtime.GOARCH, format, t.TempDir(), t.TempDir()); err != nil {
				t.Fatal(err)
			}
		}
		for i := range made[0] {
			a, errA := os.ReadFile(made[0][i])
			b, errB := os.ReadFile(made[1][i])
			if errA != nil || errB != nil || !bytes.Equal(a, b) {
				t.Errorf("%s made twice differs: %v, %v", filepath.Base(made[0][i]), errA, errB)
			}
		}
		if format == "deb" {
			buildsWith(t, made[0])
		} else if list := output(t, "rpm", "--dbpath", t.TempDir(), "-qlp", made[0][0], made[0][1]); !strings.Contains(list, "/usr/lib64/libunifiedd.so.1\n") || !strings.Contains(list, "/usr/include/unifiedd.h\n") {
			t.Errorf("the rpms have:\n%s", list)
		}
	}
}

// buildsWith builds an example with what two packages have, and runs it as far as it comes without a daemon.
func buildsWith(t *testing.T, debs []string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range debs {
		output(t, "dpkg-deb", "-x", name, dir)
		for line := range strings.Lines(output(t, "dpkg-deb", "-c", name)) {
			if f := strings.Fields(line); f[1] != "root/root" || f[0][0] != 'l' && (f[0][5] == 'w' || f[0][8] == 'w') {
				t.Errorf("%s has %s", filepath.Base(name), line)
			}
		}
	}
	if depends := output(t, "dpkg-deb", "-f", debs[1], "Depends"); depends != "libunifiedd1 (= 1.2.3-1)\n" {
		t.Errorf("the package for development depends on %s", depends)
	}
	lib := filepath.Join(dir, libraryDir(runtime.GOARCH, "deb"))
	build := exec.Command("sh", "-ec", `cc -o "$1/log_writer" "$1/usr/share/doc/libunifiedd-dev/examples/log_writer.c" $(pkg-config --cflags --libs unifiedd)`, "sh", dir)
	build.Env = append(os.Environ(), "PKG_CONFIG_SYSROOT_DIR="+dir, "PKG_CONFIG_LIBDIR="+lib+"/pkgconfig", "PKG_CONFIG_ALLOW_SYSTEM_LIBS=1", "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := exec.Command(filepath.Join(dir, "log_writer"), "nobody", "nothing", filepath.Join(dir, "no.sock"))
	run.Env = append(os.Environ(), "LD_LIBRARY_PATH="+lib)
	if out, err := run.CombinedOutput(); err == nil || strings.Contains(string(out), "loading shared libraries") {
		t.Errorf("%v: %s", err, out)
	}
}
