package initramfs

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

const someDeps = `kernel/net/igb.ko.xz: kernel/i2c-algo-bit.ko.xz kernel/dca.ko.xz
kernel/dca.ko.xz:
kernel/i2c-algo-bit.ko.xz:
kernel/nvme/nvme.ko: kernel/nvme/nvme-core.ko kernel/dca.ko.xz
kernel/nvme/nvme-core.ko: kernel/nvme/nvme-auth.ko
kernel/nvme/nvme-auth.ko:
`

func TestOrder(t *testing.T) {
	c := parseCatalogue("/m", someDeps, "kernel/fs/ext4.ko\n")
	got, err := c.order([]string{"igb", "nvme", "ext4", "nvme-core"}, []string{"crc32_generic"})
	want := []string{"kernel/i2c-algo-bit.ko.xz", "kernel/dca.ko.xz", "kernel/net/igb.ko.xz",
		"kernel/nvme/nvme-auth.ko", "kernel/nvme/nvme-core.ko", "kernel/nvme/nvme.ko"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %q\nwant %q", err, got, want)
	}
	if got, err := c.order([]string{"nosuch"}, nil); err == nil {
		t.Errorf("a module that does not exist is in the order: %q", got)
	}
}

// TestOrderWithACycle: order ends even if modules need each other in a cycle.
func TestOrderWithACycle(t *testing.T) {
	c := parseCatalogue("/m", "a.ko: a.ko b.ko\nb.ko:\n", "")
	if got, _ := c.order([]string{"a"}, nil); !reflect.DeepEqual(got, []string{"b.ko", "a.ko"}) {
		t.Errorf("%q", got)
	}
}

// TestImage: cpio(1) reads the archive, and the modules in it are decompressed.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "modules.dep"), []byte("a.ko.xz: b.ko\nb.ko:\n"))
	write(t, filepath.Join(dir, "b.ko"), []byte("module b"))
	packed := exec.Command("xz", "-c")
	packed.Stdin = strings.NewReader("module a")
	content, err := packed.Output()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a.ko.xz"), content)
	var image bytes.Buffer
	i := Image{Init: []byte("the program"), KernelModules: dir, Modules: []string{"a"}, Setup: wire.Setup{Hostname: "lab"}}
	if err := i.Write(&image); err != nil {
		t.Fatal(err)
	}
	got := entries(t, image.Bytes())
	if string(got["init"]) != "the program" || string(got["modules/a"]) != "module a" || string(got["modules/b"]) != "module b" {
		t.Errorf("the archive has %q", got)
	}
	var setup wire.Setup
	err = json.Unmarshal(got["setup.json"], &setup)
	if err != nil || setup.Hostname != "lab" || !reflect.DeepEqual(setup.Modules, []string{"b", "a"}) {
		t.Errorf("the setup is %+v, %v", setup, err)
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// entries reads the archive according to the specification, without cpio(1).
func entries(t *testing.T, b []byte) map[string][]byte {
	t.Helper()
	got := make(map[string][]byte)
	for {
		if len(b) < 110 || string(b[:6]) != "070701" {
			t.Fatalf("no header where one must be: %.20q", b)
		}
		size, nameSize := field(t, b, 6), field(t, b, 11)
		name := string(b[110 : 110+nameSize-1])
		start := (110 + nameSize + 3) &^ 3
		if name == "TRAILER!!!" {
			return got
		}
		got[name] = b[start : start+size]
		b = b[(start+size+3)&^3:]
	}
}

// field reads the n-th number of a header.
func field(t *testing.T, b []byte, n int) int {
	t.Helper()
	var v int
	for _, c := range b[6+8*n : 14+8*n] {
		v = v<<4 | strings.IndexByte("0123456789abcdef", c)
	}
	return v
}
