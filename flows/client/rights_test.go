package client

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestOpenWithoutRights: the error of a client without the rights for RoCE in software names all that it lacks.
func TestOpenWithoutRights(t *testing.T) {
	testenv.Root(t)
	for _, args := range [][]string{{"link", "add", "soft0", "type", "veth", "peer", "name", "soft1"}, {"link", "set", "soft0", "up"}} {
		testenv.Must(t, exec.Command("ip", args...).Run())
	}
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "soft0").Run() })
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has another user
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			done <- errno
			return
		}
		c, err := Open(Config{Device: "roce:soft0", Memory: 8 << 20, Pages: umem.Ordinary})
		if err == nil {
			err = c.Close()
		}
		done <- err
	}()
	err := <-done
	for _, want := range []string{"CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF", "CAP_PERFMON", "CAP_IPC_LOCK", "run it as root", "setcap cap_"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}
