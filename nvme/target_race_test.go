package nvme

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestNewFileIsTheOneThatWasMade: OpenTarget never opens what a link points to that another process
// puts in the place of the new file. The file system refuses direct I/O, so OpenTarget opens the
// file a second time.
func TestNewFileIsTheOneThatWasMade(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "ramfs", 0, ""); err != nil {
		t.Fatalf("mount a ramfs: %v (the test needs root)", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	victim := filepath.Join(t.TempDir(), "victim")
	testenv.Must(t, os.WriteFile(victim, []byte("root's\n"), 0o600))
	path, link := filepath.Join(dir, "out.pcapng"), filepath.Join(dir, "l")
	var stop atomic.Bool
	var attacker sync.WaitGroup
	attacker.Go(func() {
		for !stop.Load() {
			_ = os.Symlink(victim, link)
			var st unix.Stat_t
			for !stop.Load() && unix.Lstat(path, &st) != nil {
			}
			_ = os.Rename(link, path)
		}
	})
	defer attacker.Wait()
	defer stop.Store(true)
	made := 0
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		_ = os.Remove(path)
		tg, err := OpenTarget(TargetConfig{Path: path, Create: true, Exclusive: true, Buffered: true})
		if err != nil {
			continue // the link was there before the file
		}
		made++
		if at, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", tg.FD())); at == victim {
			t.Fatalf("the new file, the %d. that was made, is the victim", made)
		}
		testenv.Must(t, tg.Close())
	}
	if made == 0 {
		t.Error("no file was made: the test shows nothing")
	}
	if b, err := os.ReadFile(victim); string(b) != "root's\n" {
		t.Errorf("the victim has %q: %v", b, err)
	}
}
