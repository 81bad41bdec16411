package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/capinput"
)

// errEnded: this was the parent process, and the daemon has ended without an error.
var errEnded = errors.New("ended")

// giveUp reduces the process to the rights that the command needs, as the user of -Z or the one
// that root's commands become. In the parent process it returns errEnded, or why the command
// failed.
func giveUp(cfg *config.Config, reserve bool, name string, log *slog.Logger) (here privsep.Outcome, err error) {
	cfg.Region.Reserve = reserve
	if name == "" {
		name = privsep.DefaultUser()
	}
	here, err = privsep.Start(privsep.ForCommand(cfg, name))
	switch {
	case here.Status != 0: // the command has ended, and said why
		return here, &statusError{here.Status, err}
	case err != nil:
		return here, err
	case !here.Daemon:
		return here, errEnded
	}
	warnUnfiltered(log, here.Unfiltered)
	return here, nil
}

// checkUser wants a user of -Z that there is; numbers need be of nobody.
func checkUser(name string) error {
	if err := privsep.CheckUser(name); err != nil {
		return fmt.Errorf("-Z: %w", err)
	}
	return nil
}

// ended is the result of a command whose process only started another.
func ended(err error) error {
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// warnUnfiltered says that a process may make every system call.
func warnUnfiltered(log *slog.Logger, why error) {
	if why != nil {
		log.Warn("system calls are not limited to those the daemon needs", "err", why)
	}
}

// checkWritable says who may not make files in a directory, and what to do.
func checkWritable(dir string) error {
	return checkAccess("write to", dir, unix.W_OK|unix.X_OK, "choose a directory that the user may write to")
}

// checkReadable says who may not read one of the files, or of the segments whose names
// begin so. Whether they are there is for others to say.
func checkReadable(names []string) error {
	for _, name := range names {
		if name == capinput.Standard { // is open already
			continue
		}
		files := []string{name}
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			files, _ = filepath.Glob(name + "-*") // a name that is no pattern has no segments
		}
		for _, file := range files {
			if err := checkAccess("read", file, unix.R_OK, "make it readable for the user"); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkAccess(verb, path string, mode uint32, remedy string) error {
	err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
	if !errors.Is(err, unix.EACCES) {
		return nil
	}
	return fmt.Errorf("%s %s as user %s: %w (%s, or keep root's rights: -Z root)", verb, path, userName(), err, remedy)
}

// userName is the name of the user this process is of, or the number.
func userName() string {
	number := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}
