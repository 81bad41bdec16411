package peers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/pcapgo"
)

// root skips the test for ordinary users, unless tests must not be skipped.
func root(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" || os.Getenv("UNIFIEDD_REQUIRE") != "" {
		t.Fatal("this test needs root, and CI or UNIFIEDD_REQUIRE says it must run: run it with sudo")
	}
	t.Skip("needs root")
}

// run runs a program to its end and returns its standard output.
func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	var out, say bytes.Buffer
	c.Stdout, c.Stderr = &out, &say
	if err := c.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", c, err, out.Bytes(), say.Bytes())
	}
	return out.Bytes()
}

// build builds a program of this module, or of the module around it.
func build(t *testing.T, dir, pkg string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	args := append([]string{"build", "-C", dir, "-o", path}, flags...)
	run(t, "go", append(args, pkg)...)
	return path
}

// oldLinks lets giouring link, which uses a private function of package syscall.
const oldLinks = "-ldflags=-checklinkname=0"

// end is one end of a veth pair, in a namespace of its own.
type end struct{ space, name string }

// pair makes a veth pair between two namespaces.
func pair(t *testing.T) (a, b end) {
	t.Helper()
	root(t)
	make := func(letter string) end {
		e := end{space: fmt.Sprintf("unifiedd-peers-%d%s", os.Getpid(), letter), name: "peer" + letter}
		run(t, "ip", "netns", "add", e.space)
		t.Cleanup(func() {
			if out, err := exec.Command("ip", "netns", "del", e.space).CombinedOutput(); err != nil {
				t.Errorf("remove %s: %v\n%s", e.space, err, out)
			}
		})
		return e
	}
	a, b = make("a"), make("b")
	run(t, "ip", "link", "add", a.name, "netns", a.space, "type", "veth", "peer", "name", b.name, "netns", b.space)
	for _, e := range []end{a, b} {
		run(t, "nsenter", "--net=/run/netns/"+e.space, "--", "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/"+e.name+"/disable_ipv6")
		run(t, "ip", "-n", e.space, "link", "set", e.name, "up")
	}
	return a, b
}

func (e end) command(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=/run/netns/" + e.space, "--", name}, args...)...)
}

// capture starts a capture of count packets, and returns a function that waits for its end.
func capture(t *testing.T, unifiedd string, e end, count int, file, layout string) (wait func()) {
	t.Helper()
	c := e.command(unifiedd, "capture", "-i", e.name, "-c", fmt.Sprint(count), "-w", file, "--layout", layout, "-q", "ether", "proto", "0x88b5")
	var out bytes.Buffer
	c.Stdout = &out
	said, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 4096)
	n := 0
	for err == nil && n < len(text) && !strings.Contains(string(text[:n]), "capturing") {
		var more int
		more, err = said.Read(text[n:])
		n += more
	}
	if !strings.Contains(string(text[:n]), "capturing") {
		t.Fatalf("the capture does not begin: %v\n%s", err, text[:n])
	}
	return func() {
		t.Helper()
		watchdog := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
		defer watchdog.Stop()
		rest, _ := io.ReadAll(said)
		if err := c.Wait(); err != nil {
			t.Fatalf("capture: %v\n%s%s", err, text[:n], rest)
		}
	}
}

// TestSenderAndReader: a capture has the packets that one library sends, and the other library
// reads the file.
func TestSenderAndReader(t *testing.T) {
	const count, size = 3000, 700 // fewer than a ring has entries: a busy machine loses none either
	a, b := pair(t)
	unifiedd := build(t, "../..", "./cmd/unifiedd")
	send, read := build(t, ".", "./xdp-send"), build(t, ".", "./ring-read", oldLinks)
	for _, layout := range []string{"packed", "slot"} {
		t.Run(layout, func(t *testing.T) {
			file := filepath.Join(diskDir(t), "capture.pcapng")
			wait := capture(t, unifiedd, b, count, file, layout)
			if out, err := a.command(send, a.name, fmt.Sprint(count), fmt.Sprint(size)).CombinedOutput(); err != nil {
				t.Fatalf("xdp-send: %v\n%s", err, out)
			}
			wait()
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := run(t, read, file)
			if !bytes.Equal(got, want) {
				t.Fatalf("ring-read found %d bytes that are not the file's %d", len(got), len(want))
			}
			checkCapture(t, got, count, size)
		})
	}
}

// checkCapture finds every packet, in order, byte for byte.
func checkCapture(t *testing.T, file []byte, count, size int) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for n := range count {
		b, _, err := r.ReadPacketData()
		if err != nil {
			t.Fatalf("packet %d: %v", n, err)
		}
		if len(b) != size || binary.BigEndian.Uint16(b[12:]) != 0x88b5 || binary.BigEndian.Uint64(b[14:]) != uint64(n) {
			t.Fatalf("packet %d has %d bytes and begins with %x", n, len(b), b[:min(len(b), 22)])
		}
		for i := 22; i < size; i++ {
			if b[i] != byte(n)+byte(i) {
				t.Fatalf("packet %d differs at byte %d", n, i)
			}
		}
	}
	if b, _, err := r.ReadPacketData(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the last packet: %x, %v", b, err)
	}
}

// diskDir returns a directory on a disk. Temporary directories may be in memory, which has no
// direct I/O.
func diskDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "unifiedd-peers-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestBlockDevice: the library reads the random blocks that our ring wrote to a device.
func TestBlockDevice(t *testing.T) {
	root(t)
	const size, block = 8 << 20, 4096
	write, read := build(t, "../..", "./selftests/unified-nvme-test"), build(t, ".", "./ring-read", oldLinks)
	device := loopDevice(t, size)
	run(t, write, "-rw", "randwrite", "-bs", fmt.Sprint(block), "-iodepth", "32", "-size", fmt.Sprint(size), "-verify", "-force", "-reserve", device)
	got := run(t, read, device)
	want, err := os.ReadFile(device)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != size || !bytes.Equal(got, want) {
		t.Fatalf("ring-read found %d bytes that are not the device's %d", len(got), len(want))
	}
	checkBlocks(t, got, block)
}

// checkBlocks checks the header that unified-nvme-test writes to each block: a magic number and the
// block's address.
func checkBlocks(t *testing.T, device []byte, block int) {
	t.Helper()
	written := 0
	for n := range len(device) / block {
		b := device[n*block:]
		if string(b[:8]) != "unified1" {
			continue // not among the random places
		}
		written++
		if place := binary.LittleEndian.Uint64(b[8:]); place != uint64(n*block) {
			t.Fatalf("at %d lies the block of %d", n*block, place)
		}
	}
	if blocks := len(device) / block; written < blocks/2 {
		t.Errorf("%d of %d blocks were written", written, blocks)
	}
}

// loopDevice makes a block device of a file.
func loopDevice(t *testing.T, size int64) string {
	t.Helper()
	file := filepath.Join(diskDir(t), "device")
	f, err := os.Create(file)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	device := strings.TrimSpace(string(run(t, "losetup", "--direct-io=on", "--find", "--show", file)))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("detach %s: %v\n%s", device, err, out)
		}
	})
	return device
}
