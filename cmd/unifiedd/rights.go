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

// errEnded says that this was the parent process, and the daemon has ended without an error.
var errEnded = errors.New("ended")

// giveUp reduces the process to the rights that the command needs. It runs on as the user of -Z, or as the
// default user of root's commands. In the parent process it returns errEnded, or why the command failed.
func giveUp(cfg *config.Config, reserve bool, name string, log *slog.Logger) (here privsep.Outcome, err error) {
	cfg.Region.Reserve = reserve
	if name == "" {
		name = privsep.DefaultUser()
	}
	here, err = privsep.Start(privsep.ForCommand(cfg, name))
	switch {
	case here.Status != 0: // the command has ended and reported its error
		return here, &statusError{here.Status, err}
	case err != nil:
		return here, err
	case !here.Daemon:
		return here, errEnded
	}
	warnUnfiltered(log, here.Unfiltered)
	return here, nil
}

// checkUser checks that the user of -Z exists. A number need not be in the user database.
func checkUser(name string) error {
	if err := privsep.CheckUser(name); err != nil {
		return fmt.Errorf("-Z: %w", err)
	}
	return nil
}

// ended converts errEnded to success: this process only started another.
func ended(err error) error {
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// warnUnfiltered warns that a process may make every system call.
func warnUnfiltered(log *slog.Logger, why error) {
	if why != nil {
		log.Warn("system calls are not limited to those the daemon needs", "err", why)
	}
}

// absolute returns the absolute path of a file. Unlike filepath.Abs it does not need the right to look at the working
// directory, which may be root's while the process is another user's.
func absolute(name string) (string, error) {
	if filepath.IsAbs(name) {
		return filepath.Clean(name), nil
	}
	var path [unix.PathMax]byte
	n, err := unix.Getcwd(path[:])
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	return filepath.Join(unix.ByteSliceToString(path[:n]), name), nil
}

// checkWritable returns an error with the user and the remedy if this process may not make files in
// a directory.
func checkWritable(dir string) error {
	return checkAccess("write to", dir, unix.W_OK|unix.X_OK, "choose a directory that the user may write to")
}

// checkReadable returns an error with the user if this process may not read one of the files, or a
// segment whose name has that prefix. It does not report missing files.
func checkReadable(names []string) error {
	for _, name := range names {
		if name == capinput.Standard { // already open
			continue
		}
		files := []string{name}
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			files, _ = filepath.Glob(name + "-*") // an invalid pattern has no segments
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

// userName returns the name of this process's user, or the number.
func userName() string {
	number := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}
