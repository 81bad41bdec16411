package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/unifiedd/unifiedd/nvme"
)

// openTarget opens the target that the user named. In a directory it makes a file and removes it at
// the end. It also removes a file that the self-test makes.
func (s *session) openTarget(o options) error {
	c := nvme.TargetConfig{Path: o.target, Buffered: o.buffered, Force: o.force, ReadOnly: !o.writes()}
	remove := false
	st, err := os.Stat(o.target)
	switch {
	case err == nil && st.IsDir():
		c.Path = filepath.Join(o.target, fmt.Sprintf(".unified-nvme-test.%d", os.Getpid()))
		newFile(&c, o)
		remove, err = true, nil
	case err == nil && st.Mode().IsRegular():
		err = oldFile(&c, o, uint64(st.Size()))
	case errors.Is(err, fs.ErrNotExist) && o.writes():
		newFile(&c, o)
		remove, err = o.rw == "", nil
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("there is no %s to read: write it first, with -rw write", o.target)
	}
	if err != nil {
		return err
	}
	if s.target, err = nvme.OpenTarget(c); err != nil {
		return explainOpen(err)
	}
	s.cleanup.Then(s.target.Close)
	if remove {
		s.cleanup.Then(func() error { return os.Remove(c.Path) })
	}
	return nil
}

// explainOpen adds the option that avoids the error.
func explainOpen(err error) error {
	switch {
	case errors.Is(err, nvme.ErrDeviceInUse), errors.Is(err, nvme.ErrDeviceNotEmpty):
		return fmt.Errorf("%w (-force writes over it)", err)
	case errors.Is(err, nvme.ErrNoDirectIO):
		return fmt.Errorf("%w (-buffered allows it)", err)
	}
	return err
}

// newFile makes c a new file and fills it with zeros, so that the measurement does not include the
// growth of the file.
func newFile(c *nvme.TargetConfig, o options) {
	c.Create, c.Exclusive, c.Prepare, c.ReadOnly = true, true, nvme.PrepareZero, false
	switch {
	case o.rw == "":
		c.Size = selfTestSize
	case o.size > 0:
		c.Size = uint64(o.size)
	default:
		c.Size = newSize
	}
}

// oldFile makes c an existing file. It may have data that the user wants to keep.
func oldFile(c *nvme.TargetConfig, o options, has uint64) error {
	if !o.writes() {
		return nil
	}
	if has > 0 && !o.force {
		return fmt.Errorf("%s exists and holds %d bytes: writing would destroy them (-force writes over it)", o.target, has)
	}
	c.Prepare, c.Size = nvme.PrepareZero, max(uint64(o.size), has)
	if c.Size == 0 {
		c.Size = newSize
	}
	if o.rw == "" {
		c.Size = max(c.Size, selfTestSize)
	}
	return nil
}
