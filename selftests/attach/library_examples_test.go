package attach

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// TestLibraryBlockReader: the example copies a file to its standard output, byte for byte, also if the daemon is killed
// meanwhile.
func TestLibraryBlockReader(t *testing.T) {
	testenv.Long(t, "TestLibrary has the steps of the example")
	dir, built := testenv.DiskDir(t), t.TempDir()
	buildLibrary(t, built)
	reader := filepath.Join(built, "block_reader")
	build(t, compile(t)+libunifiedd+"examples/block_reader.c -o "+reader+linked(built))
	socket, image := filepath.Join(dir, "attach.sock"), filepath.Join(dir, "image")
	writeImage(t, image, 128<<20)
	want, err := os.ReadFile(image)
	testenv.Must(t, err)
	text := strings.NewReplacer("SOCKET", socket, "USER", strconv.Itoa(os.Getuid()), "IMAGE", image).Replace(blockSetting)
	d := daemon.Launch(t, program, daemon.Here{}, dir, text)
	d.Running(t)
	attached := func() status.Program {
		s, err := d.Status()
		testenv.Must(t, err)
		return s.Programs.Programs[slices.IndexFunc(s.Programs.Programs, func(p status.Program) bool { return p.Name == "reader" })]
	}
	for _, c := range []struct {
		offset, length int
		kill           bool
	}{{0, len(want), false}, {8192, 1 << 20, false}, {0, len(want), true}} {
		testenv.Wait(t, testenv.Within(5*time.Second), "the last reader to have left", func() bool { return !attached().Attached })
		var got, said bytes.Buffer
		cmd := exec.CommandContext(t.Context(), reader, "reader", "image", socket, strconv.Itoa(c.offset), strconv.Itoa(c.length))
		cmd.Stdout, cmd.Stderr = &got, &said
		testenv.Must(t, cmd.Start())
		if c.kill {
			time.Sleep(20 * time.Millisecond)
			d.Kill()
			d = daemon.Launch(t, program, daemon.Here{}, dir, text)
			d.Running(t)
		}
		if err := cmd.Wait(); err != nil || said.Len() > 0 {
			t.Fatalf("%v: %s\n%s", err, &said, d.Log)
		}
		if c.kill && attached().Attaches == 0 {
			t.Error("the reader was done before the daemon was killed")
		}
		if !bytes.Equal(got.Bytes(), want[c.offset:c.offset+c.length]) {
			t.Errorf("%d bytes from %d: %d other bytes", c.length, c.offset, got.Len())
		}
	}
}
