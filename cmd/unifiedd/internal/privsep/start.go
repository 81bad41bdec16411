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

// Needed are the capabilities of a daemon: for AF_XDP sockets (NET_RAW), XDP programs (BPF,
// NET_ADMIN) and memory pinned for devices (IPC_LOCK). Without PERFMON the verifier rejects
// programs that compare pointers.
const Needed = caps.NetRaw | caps.NetAdmin | caps.BPF | caps.Perfmon | caps.IPCLock

// Joining are the further capabilities for joining libxdp's dispatcher. Without SYS_ADMIN a process
// cannot get programs that another process has loaded. libxdp's pins belong to root (DAC_OVERRIDE).
const Joining = caps.SysAdmin | caps.DACOverride

// Giving are the further capabilities for giving files to another user (to.owner), and for opening
// them again afterwards.
const Giving = caps.Chown | caps.DACOverride

// marker is set in the environment of a started daemon.
const marker = "UNIFIEDD_STARTED"

// ownStdout is set in the environment of a daemon whose standard output is a pipe, if no other
// process shares its mode.
const ownStdout = "UNIFIEDD_OWN_STDOUT"

// opened is set in the environment to the descriptor of Options.File, if the parent process has
// made that file.
const opened = "UNIFIEDD_OPENED_FILE"

// configMarker is set in the environment to the descriptor of Options.Config.
const configMarker = "UNIFIEDD_CONFIG_FILE"

// Options say what the daemon gets. The zero value keeps the user and no capability.
type Options struct {
	// User is the name or number of the user to run as; empty: the current user.
	User string
	// Keep has the capabilities that the daemon may have. It gets those that this process has.
	Keep caps.Set
	// Dirs are directories that the daemon writes to. Missing ones are made and given to the user.
	// Existing ones are not changed.
	Dirs []string
	// Existing are directories that the daemon writes to, and that are not made. One that is missing is the error of
	// the flow that needs it.
	Existing []string
	// Sockets are unix sockets that the daemon listens on. The parent process removes those that
	// the daemon leaves behind.
	Sockets []string
	// Steering is the directory where the daemon records its rules in cards. The parent process
	// removes those that the daemon leaves behind; empty: there are none.
	Steering string
	// Joins says that the daemon's programs may be in libxdp's dispatchers. The parent process
	// removes those that the daemon leaves behind.
	Joins bool
	// Region is allocated for the daemon, on huge pages or on a device. At the daemon's end the pages that were
	// reserved for it are given back. Nil: the daemon takes free pages, or none.
	Region *umem.Config
	// Free takes only free huge pages for the region, and reserves none.
	Free bool
	// File is the one file that a command writes. If the user may not write to its directory, the
	// parent process makes it, as tcpdump does; empty: there is none.
	File string
	// Config, if not nil, is passed on to the daemon, which finds it by PassedConfig.
	Config *os.File
	// Files are files that the daemon's user must be able to open. They are not changed.
	Files []files.File
	// Announce makes the parent process print on standard error how many pages it adds.
	Announce bool
}

// Outcome says what Start made of the calling process.
type Outcome struct {
	// Daemon says that the process is the daemon, and continues. Otherwise it was the parent
	// process of a daemon that has ended, and must exit with Status.
	Daemon bool
	// Status is the daemon's exit status, or 128 plus the number of the signal that killed it.
	Status int
	// Missing has the capabilities of Keep that the daemon does not have.
	Missing caps.Set
	// OwnStdout says that standard output is a pipe whose mode no other process shares.
	OwnStdout bool
	// Opened is a path to the open Options.File, if the parent process has made it.
	Opened string
	// Unfiltered says why the daemon may make every system call: the kernel cannot filter them.
	// Nil: the daemon may make only those of the list.
	Unfiltered error
	// Memory is the memory for the daemon's region; nil without Options.Region.
	Memory *umem.Memory
}

// Start makes the calling process the daemon if it has no surplus right. Otherwise it starts the
// daemon and returns when the daemon has ended. If Daemon is unset and Status is not zero, the
// error says what could not be cleaned up after the daemon.
func Start(o Options) (Outcome, error) {
	if !o.Keep.Has(caps.IPCLock) {
		raiseLimit() // a started daemon inherits it
	}
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
	case errors.Is(err, unix.ENOMEM), memory.Short() != nil && !o.Free && umem.MayReserve():
		return o.launch(u)
	case err != nil:
		return Outcome{}, err
	}
	return o.confine(memory)
}

// sufficient reports whether the process can be the daemon as it is.
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

// checkStarted is Start in a daemon that a parent process has started. It trusts only what the
// kernel says about its threads.
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
	// Set the name that ps shows. The kernel took it from the path, /proc/self/exe.
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

// confine limits the daemon to its list of system calls. The outcome names the capabilities that it lacks.
func (o Options) confine(memory *umem.Memory) (Outcome, error) {
	self, err := caps.Self()
	if err != nil {
		return Outcome{}, err
	}
	if err := errors.Join(checkDirs(o.Dirs, self.UID.Effective), checkDirs(existing(o.Existing), self.UID.Effective), files.Check(o.Files, self.UID.Effective)); err != nil {
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
