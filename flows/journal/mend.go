package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/internal/ring"
)

// ErrInUse says that another process writes a log.
var ErrInUse = errors.New("another process writes it (stop the flow first)")

// DamagedSuffix is what the name of a file gets of which nothing can be had back.
const DamagedSuffix = ".damaged"

// Apply mends the log as it is planned. Done in part, by a crash, it can be planned and applied again.
func (r *Repair) Apply() error {
	err := r.apply()
	if err != nil {
		err = fmt.Errorf("repair log %s: %w", r.log.path, err)
	}
	return err
}

func (r *Repair) apply() error {
	if on, ok := r.ring(); ok {
		return r.applyToRing(on)
	}
	return r.applyToFiles()
}

// applyToFiles holds the files that it changes, so that no flow begins with them meanwhile.
func (r *Repair) applyToFiles() (err error) {
	d, base, err := newfile.Open(r.log.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	f, err := d.OpenFile(base+ManifestSuffix, os.O_RDWR)
	if err == nil {
		defer f.Close()
		err = lock(f)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, made := range r.Heads {
		if err := putHead(d, made); err != nil {
			return err
		}
	}
	for _, one := range r.GivenUp {
		if err := setAside(d, one); err != nil {
			return err
		}
	}
	if err := d.Sync(); err != nil {
		return err
	}
	if f == nil { // the segments' owner is the log's
		k, err := KeepFile(d, base+ManifestSuffix, r.now, r.sameOwner)
		if err != nil {
			return err
		}
		return k.Close()
	}
	return r.writeManifest(f, 0)
}

// writeManifest has both slots hold the manifest, one durably before the other.
func (r *Repair) writeManifest(f ring.File, base int64) error {
	k := &Keeper{file: f, base: base, now: r.now, durable: r.now.Generation}
	for range copies[:2] {
		if err := k.Update(true, func(*Manifest) {}); err != nil {
			return err
		}
	}
	return nil
}

// lock holds an open file as flows hold theirs.
func lock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s: %w", f.Name(), ErrInUse)
	}
	return nil
}

// putHead writes the head of a file, durably.
func putHead(d *newfile.Dir, made Rebuilt) error {
	f, err := d.OpenFile(filepath.Base(made.piece.path), os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lock(f); err != nil {
		return err
	}
	if _, err := f.WriteAt(made.piece.head, 0); err != nil {
		return fmt.Errorf("write the head of %s: %w", made.Name, err)
	}
	return f.Sync()
}

// setAside gives a file, if it is there, a name that is no segment's.
func setAside(d *newfile.Dir, one *Damage) error {
	name := filepath.Base(one.Name)
	f, err := d.OpenFile(name, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lock(f); err != nil {
		return err
	}
	return d.Rename(name, name+DamagedSuffix)
}

// sameOwner gives a file to who owns the segments.
func (r *Repair) sameOwner(f *os.File) error {
	all, err := r.log.set.list(0)
	if err != nil || len(all) == 0 {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(all[len(all)-1].path, &st); err != nil {
		return err
	}
	return errors.Join(f.Chmod(os.FileMode(st.Mode&0o777)), f.Chown(int(st.Uid), int(st.Gid)))
}

// applyToRing claims the device as flows do.
func (r *Repair) applyToRing(on *rings) (err error) {
	flags := os.O_RDWR
	if info, err := on.file.Stat(); err == nil && info.Mode()&os.ModeDevice != 0 {
		flags |= os.O_EXCL
	}
	f, err := os.OpenFile(on.file.Name(), flags, 0)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%s: %w", on.file.Name(), ErrInUse)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, made := range r.Heads {
		slot := on.Slot(f, made.Segment)
		if _, err := slot.WriteAt(made.piece.head, 0); err != nil {
			return fmt.Errorf("write the head of %s: %w", made.Name, err)
		}
		if err := slot.Sync(); err != nil {
			return err
		}
	}
	return r.writeManifest(f, ring.ManifestOffset)
}
