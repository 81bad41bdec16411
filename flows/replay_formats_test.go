package flows

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// old writes a pcap file with this magic number. Its packet headers are longer by extra bytes, and behind
// each packet the file has beyond more bytes than the packet's own length.
func (l *lab) old(t *testing.T, name string, magic uint32, extra, beyond int, frames [][]byte) string {
	t.Helper()
	o := binary.LittleEndian
	b := o.AppendUint16(o.AppendUint16(o.AppendUint32(nil, magic), 2), 4)
	b = o.AppendUint32(o.AppendUint32(append(b, make([]byte, 8)...), 65535), 1)
	for i, f := range frames {
		b = o.AppendUint32(o.AppendUint32(b, 1_700_000_000), uint32(i))
		b = o.AppendUint32(o.AppendUint32(b, uint32(len(f)+beyond)), uint32(len(f)))
		b = append(append(append(b, make([]byte, extra)...), f...), make([]byte, beyond)...)
	}
	path := filepath.Join(l.dir, name)
	testenv.Must(t, os.WriteFile(path, b, 0o600))
	return path
}

// TestReplayFormats: a replay accepts the files that other readers accept: other magic numbers and lengths of
// headers, compressed files, a pipe. It sends as much of each packet as the packet's own length, even if the
// file has more. It counts the bytes that it copies for this.
func TestReplayFormats(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	frames := testenv.Stream(&l.A, &l.B, 5000, 0, 200, 300)
	plain := l.old(t, "plain", 0xa1b2c3d4, 0, 16, frames)
	fifo := filepath.Join(l.dir, "fifo")
	testenv.Must(t, unix.Mkfifo(fifo, 0o600))
	for _, c := range []struct {
		name   string
		copied bool
		make   func(path string) error
	}{
		{"longer than the packets", false, func(path string) error { return os.Rename(l.old(t, "x", 0xa1b2c3d4, 0, 16, frames), path) }},
		{"modified", false, func(path string) error { return os.Rename(l.old(t, "x", 0xa1b2cd34, 8, 0, frames), path) }},
		{"modified, longer", false, func(path string) error { return os.Rename(l.old(t, "x", 0xa1b2cd34, 12, 0, frames), path) }},
		{"gzip", true, func(path string) error { return exec.Command("sh", "-c", "gzip -c "+plain+" >"+path).Run() }},
		{"zstd", true, func(path string) error { return exec.Command("sh", "-c", "zstd -qc "+plain+" >"+path).Run() }},
		{"pipe", true, func(path string) error {
			if err := os.Rename(fifo, path); err != nil {
				return err
			}
			return exec.Command("sh", "-c", "cat "+plain+" >"+path+" &").Start()
		}},
	} {
		path := filepath.Join(l.dir, "file")
		if err := c.make(path); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		d := l.open(t, l.replaying("slot", fmt.Sprintf("file: %s", path), "pace: top"), Options{})
		s, got := l.replay(t, d.Flows()[1], len(frames), total(frames))
		samePackets(t, c.name, got, frames)
		if lost(s) != 0 || (s.CopiedBytes["unpacked"] > 0) != c.copied {
			t.Errorf("%s: lost %v, copied %v", c.name, s.Dropped, s.CopiedBytes)
		}
		closeAudited(t, d)
	}
}
