package attach

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// buildWithSources builds a program of testdata together with the library.
func buildWithSources(t *testing.T, source, to, flags string) {
	t.Helper()
	build(t, compile(t)+libunifiedd+"testdata/"+source+" "+sources(t, "*.c")+" -o "+to+" "+flags)
}

// manyPorts returns a directory, a socket and a configuration with a flow, channel or state of each kind.
func manyPorts(t *testing.T) (dir, socket, text string) {
	t.Helper()
	dir = testenv.DiskDir(t)
	socket = filepath.Join(dir, "attach.sock")
	image := filepath.Join(dir, "image")
	writeImage(t, image, 1<<20)
	text = strings.NewReplacer("SOCKET", socket, "USER", strconv.Itoa(os.Getuid()), "IMAGE", image).Replace(`
region: {size: 32MiB, pages: ordinary}
attach:
  socket: SOCKET
  programs: [{name: writer, user: "USER", out: 2MiB}, {name: reader, user: "USER", in: 4MiB}]
  channels:
    - {name: first, writer: writer, slots: 64, slot: 128, readers: [{program: reader, policy: wait}]}
    - {name: second, writer: writer, slots: 64, slot: 128, readers: [{program: reader, policy: drop_oldest}]}
  states: [{name: book, objects: 16, room: 64, readers: [reader]}]
flows:
  - {name: orders, from: {attach: writer, message: 64}, to: {discard: true}}
  - {name: books, from: {attach: writer, message: 80}, to: {state: book}}
  - {name: md, from: {generate: 64, rate: 20000}, to: {attach: reader}}
  - {name: image, from: {file: IMAGE}, to: {attach: reader, queue: 64}}
`)
	return dir, socket, text
}

// TestLibraryHotPath: the library allocates nothing while messages pass.
func TestLibraryHotPath(t *testing.T) {
	testenv.Long(t, "flows/attached tests the same for Go")
	hotpath := filepath.Join(t.TempDir(), "hotpath")
	buildWithSources(t, "hotpath.c", hotpath, "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=mmap")
	dir, socket, text := manyPorts(t)
	d := daemon.Launch(t, program, daemon.Here{}, dir, text)
	d.Running(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(time.Minute))
	defer cancel()
	if out, err := exec.CommandContext(ctx, hotpath, socket).CombinedOutput(); err != nil || string(out) != "done\n" {
		t.Fatalf("%v: %s\n%s", err, out, d.Log)
	}
}

// TestLibraryThreads: threads of one process use ports, channels and states of the same clients at the same time, over two
// ends of the daemon. A sanitizer finds no data race.
func TestLibraryThreads(t *testing.T) {
	testenv.Long(t, "it compiles and runs with another sanitizer")
	built := t.TempDir()
	threads := filepath.Join(built, "threads")
	// The compiler warns that the sanitizer does not know fences. Those of the library order what other processes see.
	buildWithSources(t, "threads.c", threads, "-g -fsanitize=thread -Wno-tsan")
	dir, socket, text := manyPorts(t)
	d := daemon.Launch(t, program, daemon.Here{}, dir, text)
	d.Running(t)
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "setarch", "-R", threads, socket, "20000") // the sanitizer needs its addresses
	cmd.Stdout, cmd.Stderr = &out, &out
	testenv.Must(t, cmd.Start())
	limit := time.AfterFunc(testenv.Within(2*time.Minute), func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	for range 2 {
		time.Sleep(200 * time.Millisecond)
		d.Kill()
		d = daemon.Launch(t, program, daemon.Here{}, dir, text)
		d.Running(t)
	}
	if err := cmd.Wait(); err != nil || out.String() != "done\n" {
		t.Fatalf("%v: %s\n%s", err, &out, d.Log)
	}
}
