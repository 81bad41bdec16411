// Package files lists the files and devices of a configuration that must exist before the daemon
// starts, and checks whether a process may open them.
package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
)

// File is a file or device of the configuration that the daemon opens as its user.
type File struct {
	Setting string // that names the file
	Path    string
	Write   bool
	Secret  bool // only the user may read it
}

// Of returns the files and devices of a configuration that must exist before the daemon starts. The daemon
// reads all of them, and writes those with Write.
func Of(c *config.Config) []File {
	all := []File{
		{Setting: "tls.certificate", Path: c.TLS.Certificate}, {Setting: "tls.key", Path: c.TLS.Key}, {Setting: "tls.authority", Path: c.TLS.Authority},
		{Setting: "cluster.tls.certificate", Path: c.Cluster.TLS.Certificate}, {Setting: "cluster.tls.key", Path: c.Cluster.TLS.Key},
		{Setting: "cluster.tls.authority", Path: c.Cluster.TLS.Authority},
	}
	for i := range c.Flows {
		f := &c.Flows[i]
		setting := func(key string) string { return fmt.Sprintf("flow %s: %s", f.Name, key) }
		written := f.To.Subsystem != "" && !f.To.ReadOnly
		all = append(all,
			File{Setting: setting("from.filter.object"), Path: f.From.Object.File},
			File{Setting: setting("from.device"), Path: f.From.Device, Write: written},
			File{Setting: setting("to.device"), Path: f.To.Device, Write: true},
			File{Setting: setting("to.keys"), Path: f.To.Keys, Secret: true},
		)
		for _, path := range f.From.Captures() {
			for _, name := range present(path) {
				all = append(all, File{Setting: setting("from.file"), Path: name, Write: written})
			}
		}
		for _, n := range f.To.Served() {
			all = append(all, File{Setting: setting(fmt.Sprintf("namespace %d of %s", n.ID, n.Subsystem)), Path: n.Path(), Write: !n.ReadOnly})
		}
	}
	return slices.DeleteFunc(all, func(f File) bool { return f.Path == "" })
}

// present returns the files that a name stands for: the file itself, or the segments whose names
// begin with it.
func present(name string) []string {
	if _, err := os.Lstat(name); name == "" || !errors.Is(err, fs.ErrNotExist) {
		return []string{name}
	}
	found, _ := filepath.Glob(name + "-*") // a name that is not a valid pattern has no segments
	if found == nil {
		return []string{name}
	}
	return found
}

// Check returns an error for each file that this process may not open. It does not check whether a
// file exists and has the right contents. The code that opens the file does.
func Check(files []File, uid uint32) error {
	var errs []error
	for _, f := range files {
		if remedy, err := f.Access(uid); errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) {
			errs = append(errs, fmt.Errorf("%s: %w (%s)", f.Setting, err, remedy))
		}
	}
	return errors.Join(errs...)
}

// Access returns the reason why this process, run by a user, may not open the file, or an error if
// the file does not exist. remedy says how to fix it.
func (f File) Access(uid uint32) (remedy string, err error) {
	mode, verb := uint32(unix.R_OK), "read"
	if f.Write {
		mode, verb = unix.R_OK|unix.W_OK, "write"
	}
	switch err := unix.Faccessat(unix.AT_FDCWD, f.Path, mode, unix.AT_EACCESS); {
	case err == nil:
		return "", nil
	case errors.Is(err, unix.EACCES):
		return f.remedy(uid), fmt.Errorf("%s %s as user %d: %w", verb, f.Path, uid, err)
	case errors.Is(err, unix.EROFS):
		return ReadOnly(f.Path), fmt.Errorf("%s %s: %w", verb, f.Path, err)
	default:
		return "make it, or name another", fmt.Errorf("%s %s: %w", verb, f.Path, err)
	}
}

// remedy returns the command that lets the user open the file.
func (f File) remedy(uid uint32) string {
	letters := "r"
	if f.Write {
		letters = "rw"
	}
	switch {
	case uid == 0: // without CAP_DAC_OVERRIDE
		return "the daemon keeps no right of root's to files of others; run: chown root " + f.Path + ", or set user to one who may"
	case f.Secret:
		return fmt.Sprintf("run: chown %d %s; the user must reach its directory as well", uid, f.Path)
	}
	return fmt.Sprintf("let the user, with chown or with setfacl -m u:%d:%s %s; the user must reach its directory as well", uid, letters, f.Path)
}

// ReadOnly returns the remedy for a file system that is mounted read-only.
func ReadOnly(path string) string {
	return "mount the file system for writing; in a unit of systemd with ProtectSystem add ReadWritePaths=" + path
}
