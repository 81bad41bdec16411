package privsep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/files"
	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/seccomp"
	"github.com/unifiedd/unifiedd/umem"
)

// Needed are the capabilities a daemon works with: AF_XDP sockets (NET_RAW), XDP
// programs (BPF, NET_ADMIN, and PERFMON, without which the verifier lets no
// program compare pointers), memory pinned for devices (IPC_LOCK).
const Needed = caps.NetRaw | caps.NetAdmin | caps.BPF | caps.Perfmon | caps.IPCLock

// Joining are those it takes beyond these to join libxdp's dispatcher: without SYS_ADMIN the kernel gives nobody a program that
// another process has loaded, and libxdp's pins are root's (DAC_OVERRIDE).
const Joining = caps.SysAdmin | caps.DACOverride

// Giving are those it takes beyond these to give files to another user (to.owner), and to
// open them again once they are that user's.
const Giving = caps.Chown | caps.DACOverride

// marker is set in the environment of a started daemon.
const marker = "UNIFIEDD_STARTED"

// ownStdout is set there when nobody else shares the mode of its standard output, a pipe.
const ownStdout = "UNIFIEDD_OWN_STDOUT"

// opened is set there to the descriptor by which Options.File is open, if the parent process has
// made it.
const opened = "UNIFIEDD_OPENED_FILE"

// Options say what the daemon is to have. The zero value keeps the user and no
// capability.
type Options struct {
	// User is the name or number of the user to run as; empty: stay who we are.
	User string
	// Keep has the capabilities that the daemon may have, as far as this process has them.
	Keep caps.Set
	// Dirs are directories the daemon writes to. Missing ones are made and given to
	// the user, others are left as they are.
	Dirs []string
	// Sockets are unix sockets the daemon listens on. Those it leaves behind are
	// removed.
	Sockets []string
	// Steering is the directory where the daemon notes which rules in cards are its own. Those it leaves behind are
	// taken out; empty: there are none.
	Steering string
	// Joins says that the daemon's programs may be in libxdp's dispatchers. Those it leaves behind are taken out.
	Joins bool
	// Region is allocated for the daemon on huge pages. What is reserved for it is
	// taken away at its end; nil: the daemon takes free pages, or none.
	Region *umem.Config
	// File is the one file a command writes. Where the user may not write to its
	// directory, the parent process makes it, as tcpdump does; empty: there is none.
	File string
	// Files are those that must be open to the daemon's user. They are left as they are.
	Files []files.File
	// Announce has the parent process say on standard error how many pages it adds.
	Announce bool
}

// Outcome says what the calling process is now.
type Outcome struct {
	// Daemon: the process is the daemon, and goes on. Otherwise it was the parent process
	// of a daemon that has ended, and exits with Status.
	Daemon bool
	// Status is the daemon's exit status, or 128 and the number of the signal that
	// killed it.
	Status int
	// Missing has the capabilities of Keep that the daemon does not have.
	Missing caps.Set
	// OwnStdout says that standard output is a pipe whose mode nobody else shares.
	OwnStdout bool
	// Opened is a path by which Options.File is open, if the parent process has made it.
	Opened string
	// Unfiltered is why the daemon may make every system call: the kernel filters
	// none. Nil: it makes those of the list only.
	Unfiltered error
	// Memory is the memory for the daemon's region; nil without Options.Region.
	Memory *umem.Memory
}

// Start makes the calling process the daemon if it has no right too many, or else
// starts the daemon and returns when it has ended. An error with Daemon unset and
// Status not zero is about what could not be cleaned up after it.
func Start(o Options) (Outcome, error) {
	u, err := lookUp(o.User)
	if err != nil {
		return Outcome{}, fmt.Errorf("become user %s: %w", o.User, err)
	}
	if os.Getenv(marker) != "" {
		os.Unsetenv(marker)
		return o.checkStarted(u)
	}
	fit, err := o.sufficient(u)
	if err != nil {
		return Outcome{}, err
	}
	if !fit {
		return o.launch(u)
	}
	memory, err := o.freeMemory()
	switch {
	case errors.Is(err, unix.ENOMEM):
		return o.launch(u)
	case err != nil:
		return Outcome{}, err
	}
	return o.confine(memory)
}

// sufficient reports whether the process is fit to be the daemon as it is.
func (o Options) sufficient(u *identity) (bool, error) {
	threads, err := caps.Threads()
	if err != nil {
		return false, err
	}
	for _, t := range threads {
		if t.Reach().Minus(o.Keep) != 0 || !u.is(t) {
			return false, nil
		}
	}
	return true, nil
}

// checkStarted is Start in a started daemon. It believes what the kernel says about
// its threads, and nothing else.
func (o Options) checkStarted(u *identity) (Outcome, error) {
	threads, err := caps.Threads()
	if err != nil {
		return Outcome{}, err
	}
	for _, t := range threads {
		if err := o.verify(t, u); err != nil {
			return Outcome{}, fmt.Errorf("refuse to run: %w (start it again without %s in the environment)", err, marker)
		}
	}
	// The name which ps shows: the kernel took it from the path, /proc/self/exe.
	if err := os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0); err != nil {
		return Outcome{}, fmt.Errorf("name the process: %w", err)
	}
	memory, err := inherited()
	if err != nil {
		return Outcome{}, fmt.Errorf("take over the region's memory from the parent process: %w", err)
	}
	return o.confine(memory)
}

// verify returns an error if a thread of a started daemon has too many rights.
func (o Options) verify(t caps.Status, u *identity) error {
	switch extra := t.Reach().Minus(o.Keep); {
	case extra != 0:
		return fmt.Errorf("a thread still has %v", extra)
	case !t.NoNewPrivs:
		return errors.New("a thread could still gain rights (no_new_privs is not set)")
	case !u.is(t):
		return fmt.Errorf("a thread is still of user %d, not %d", t.UID.Effective, u.uid)
	}
	return nil
}

// confine limits the daemon to the system calls it makes, and names what it lacks.
func (o Options) confine(memory *umem.Memory) (Outcome, error) {
	self, err := caps.Self()
	if err != nil {
		return Outcome{}, err
	}
	if err := errors.Join(checkDirs(o.Dirs, self.UID.Effective), files.Check(o.Files, self.UID.Effective)); err != nil {
		return Outcome{}, err
	}
	out := Outcome{Daemon: true, Missing: o.Keep.Minus(self.Effective), Memory: memory, OwnStdout: os.Getenv(ownStdout) != ""}
	os.Unsetenv(ownStdout)
	if out.Opened, err = openedFile(); err != nil {
		return Outcome{}, err
	}
	if err := seccomp.Apply(); errors.Is(err, seccomp.ErrUnsupported) {
		out.Unfiltered = err
	} else if err != nil {
		return Outcome{}, err
	}
	return out, nil
}
