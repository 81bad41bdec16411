package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/strftime"
)

// rotateFlags are the flags of capture for several files, with tcpdump's names.
type rotateFlags struct {
	size    string // -C
	seconds int    // -G
	files   int    // -W
	command string // -z
}

// rotate returns when a capture begins a new file, and how it names files.
func (f *captureFlags) rotate() (r config.Rotate, err error) {
	if f.turns == (rotateFlags{}) {
		return r, nil
	}
	if f.turns.command != "" {
		if f.turns.size == "" && f.turns.seconds == 0 {
			return r, errors.New("-z is about the files of -C or -G: give one of these")
		}
		if _, err := exec.LookPath(f.turns.command); err != nil {
			return r, fmt.Errorf("-z: %w (name a program, which gets the file as its argument)", err)
		}
	}
	size, err := fileSize(f.turns.size)
	switch {
	case err != nil:
		return r, err
	case f.turns.seconds < 0:
		return r, fmt.Errorf("-G %d is no number of seconds", f.turns.seconds)
	case f.turns.files < 0:
		return r, fmt.Errorf("-W %d is no number of files", f.turns.files)
	case size == 0 && f.turns.seconds == 0:
		return r, errors.New("-W counts the files of -C or -G: give one of these")
	case f.file == "":
		return r, errors.New("-C and -G begin new files: name them by -w")
	case f.file == "-":
		return r, errors.New("-C and -G begin new files, and standard output is none: name them by -w, or leave them to who reads")
	}
	if f.turns.seconds > 0 {
		if err := strftime.Check(f.file); err != nil {
			return r, fmt.Errorf("-w: %w", err)
		}
	}
	return config.Rotate{Size: size, Every: time.Duration(f.turns.seconds) * time.Second, Files: f.turns.files}, nil
}

// fileUnits are the units of tcpdump's -C. Without a unit it counts millions of bytes.
var fileUnits = map[byte]uint64{'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30}

const million = 1_000_000

// fileSize parses the size of -C.
func fileSize(s string) (config.Size, error) {
	if s == "" {
		return 0, nil
	}
	digits, unit := s, uint64(million)
	if u, ok := fileUnits[strings.ToLower(s)[len(s)-1]]; ok {
		digits, unit = s[:len(s)-1], u
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 || n > math.MaxInt64/unit/2 {
		return 0, fmt.Errorf("-C %s is no size: millions of bytes, or a number with k, m or g", s)
	}
	return config.Size(n * unit), nil
}

// files sets the files of a capture.
func (f *captureFlags) files(to *config.To) (err error) {
	if named := f.file != "" && f.file != "-"; !named && (f.mode != "" || f.keepFree != "0") {
		return errors.New("--mode and --keep-free are about a file: name it by -w")
	}
	if to.Rotate, err = f.rotate(); err != nil {
		return err
	}
	if to.Rotate.Size > 0 {
		to.Prepare = config.PrepareAllocate
	}
	if err := checkUser(f.user); err != nil {
		return err
	}
	if f.mode != "" {
		if to.Mode, err = config.ParseMode(f.mode); err != nil {
			return fmt.Errorf("--mode: %w", err)
		}
	}
	if to.KeepFree, err = config.ParseRoom(f.keepFree); err != nil {
		return fmt.Errorf("--keep-free: %w", err)
	}
	return nil
}

// postrotate runs the command of -z for each complete file.
type postrotate struct {
	command string
	errs    io.Writer
}

// afterwards returns what to do with complete files.
func (f *rotateFlags) afterwards(errs io.Writer) *postrotate {
	return &postrotate{command: f.command, errs: errs}
}

// lowest is the nice value of the command. The capture has priority over it.
const lowest = 19

// file starts the command for a file. The capture never waits for it, not even at its end.
func (p *postrotate) file(path string) {
	if p.command == "" {
		return
	}
	cmd := exec.Command(p.command, path)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C signals only the capture
	wait, err := privsep.StartBare(cmd)
	if err != nil {
		fmt.Fprintf(p.errs, "-z %s %s: %v\n", p.command, path, err)
		return
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, cmd.Process.Pid, lowest)
	go func() {
		if err := wait(); err != nil {
			fmt.Fprintf(p.errs, "-z %s %s: %v\n", p.command, path, err)
		}
	}()
}
