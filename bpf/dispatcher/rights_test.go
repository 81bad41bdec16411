package dispatcher

import (
	"errors"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// asUser runs f in the interface's namespace, on a thread of an ordinary user that has these capabilities
// only.
func (b *bench) asUser(capabilities []int, f func() error) (err error) {
	b.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		b.End.Do(b, func() {
			if err = becomeUser(capabilities); err == nil {
				err = f()
			}
		})
	}()
	<-done
	return err
}

// becomeUser makes the calling thread one of an ordinary user with these capabilities.
func becomeUser(capabilities []int) error {
	const user = 65534
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, user, user, user); errno != 0 { // of this thread alone
		return errno
	}
	var data [2]unix.CapUserData
	for _, c := range capabilities {
		data[c/32].Effective |= 1 << (c % 32)
		data[c/32].Permitted |= 1 << (c % 32)
	}
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
}

// usual are the capabilities that a daemon keeps without a dispatcher, too.
var usual = []int{unix.CAP_NET_RAW, unix.CAP_NET_ADMIN, unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_IPC_LOCK}

// TestAsDaemon: an ordinary user with the capabilities that a daemon keeps for a dispatcher, two more than
// usual, can find a dispatcher, join and leave, though root owns all files. (The thread also needs
// CAP_SYS_ADMIN to return to its namespace.)
func TestAsDaemon(t *testing.T) {
	b := newBench(t)
	s, p := b.seated(b.plain("unifiedd_a")), b.plain("unifiedd_b")
	err := b.asUser(append(usual, unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE), func() error {
		i, err := Find(b.End.Index)
		if err != nil {
			return err
		}
		defer i.Close()
		target, err := i.Target()
		if err != nil {
			return err
		}
		_ = target.Close()
		if here, err := s.Here(); here == 0 || err != nil {
			return errors.Join(errors.New("not there"), err)
		}
		err = locked(func(f *files) error {
			m, err := f.mark(1<<31 - 1)
			if err != nil {
				return err
			}
			return errors.Join(pinProgram(p, filepath.Join(f.pins(b.End.Index, s.in), "prog1-prog")), m.close())
		})
		return errors.Join(err, s.Close())
	})
	testenv.Check(t, err)
	b.nothingLeft()
}

// TestAsDaemonWithout: without one of these capabilities the error names it, and nothing changes.
func TestAsDaemonWithout(t *testing.T) {
	b := newBench(t)
	s := b.seated(b.plain("unifiedd_a"))
	before := b.Pins(t)
	err := b.asUser(append(usual, unix.CAP_SYS_ADMIN), func() error {
		_, err := s.Here()
		return err
	})
	b.refused(err, ErrPermission, "CAP_DAC_OVERRIDE")
	if after := b.Pins(t); len(after) != len(before) || b.on() == 0 {
		t.Errorf("pins are %v, were %v", after, before)
	}
	testenv.Check(t, s.Close())
}
