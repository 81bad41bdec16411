package ruledcard

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// launcher is set in the environment of a process that is to exec a command.
const launcher = "UNIFIEDD_RULEDCARD"

func init() { // in the test's binary, started again as launcher
	if path := os.Getenv(launcher); path != "" {
		fmt.Fprintln(os.Stderr, "become", path, launch(path))
		os.Exit(127)
	}
}

// launch execs the command. The kernel suspends the command's ioctls about cards, and the process
// at the other end of file 3 answers them.
func launch(path string) error {
	listener, err := notify()
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		return err
	}
	unix.Close(3)
	os.Unsetenv(launcher)
	return syscall.Exec(path, os.Args, os.Environ())
}

// Start starts a command to which every interface seems to have the card. The command ends before
// the test does.
func (c *Card) Start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if cmd.Err != nil {
		t.Fatal(cmd.Err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	testenv.Must(t, err)
	theirs := os.NewFile(uintptr(ends[1]), "listener")
	cmd.Env = append(cmd.Environ(), launcher+"="+cmd.Path)
	cmd.Path, cmd.ExtraFiles = "/proc/self/exe", []*os.File{theirs}
	err = cmd.Start()
	theirs.Close()
	testenv.Must(t, err)
	listener, err := receive(ends[0])
	unix.Close(ends[0])
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("start a command whose ioctls are answered here: %v", err)
	}
	var done sync.WaitGroup
	done.Go(func() { c.serve(listener) })
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		done.Wait()
	})
}

func receive(from int) (int, error) {
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(from, b, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, err
	}
	all, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(all) != 1 {
		return -1, fmt.Errorf("no listener came: %v", err)
	}
	fds, err := unix.ParseUnixRights(&all[0])
	if err != nil {
		return -1, err
	}
	return fds[0], nil
}

// serve answers requests until no process can send one.
func (c *Card) serve(listener int) {
	defer unix.Close(listener)
	for {
		p := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, -1); err == unix.EINTR {
			continue
		}
		if p[0].Revents&unix.POLLIN == 0 {
			return
		}
		var asked notification
		if err := next(listener, &asked); err != nil {
			continue // the process was killed before
		}
		_ = reply(listener, c.handle(&asked))
	}
}

// handle answers a request about rules. It lets the kernel answer others.
func (c *Card) handle(n *notification) response {
	goOn := response{id: n.id, flags: 1} // SECCOMP_USER_NOTIF_FLAG_CONTINUE
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", n.pid), os.O_RDWR, 0)
	if err != nil {
		return goOn
	}
	defer memory.Close()
	var ifreq [24]byte
	if _, err := memory.ReadAt(ifreq[:], int64(n.args[2])); err != nil {
		return goOn
	}
	at := int64(binary.NativeEndian.Uint64(ifreq[16:]))
	var r request
	if _, err := memory.ReadAt(r.head[:4], at); err != nil || r.command() < unix.ETHTOOL_GRXRINGS || r.command() > unix.ETHTOOL_SRXCLSRLINS {
		return goOn
	}
	if _, err := memory.ReadAt(r.head[:listAt], at); err != nil {
		return response{id: n.id, errno: -int32(unix.EFAULT)}
	}
	errno := c.answer(&r)
	if errno == 0 {
		for i, location := range r.locations {
			var b [4]byte
			binary.NativeEndian.PutUint32(b[:], location)
			if _, err := memory.WriteAt(b[:], at+listAt+int64(4*i)); err != nil {
				errno = unix.EFAULT
			}
		}
		if _, err := memory.WriteAt(r.head[:listAt], at); err != nil {
			errno = unix.EFAULT
		}
	}
	return response{id: n.id, errno: -int32(errno)}
}
