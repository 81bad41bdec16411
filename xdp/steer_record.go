package xdp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// steerPrefix is what the names of records begin with.
const steerPrefix = "unifiedd-steering-"

// maxSteerRecord bounds what is read of a record.
const maxSteerRecord = 1 << 20

// steerRecord is the file of one Steering, locked while its process lives.
type steerRecord struct {
	*os.File
	noted steerNote
}

// steerNote is what a record says.
type steerNote struct {
	Namespace uint64 // of the network: the inode of its file
	Index     int    // of the interface in it
	Rules     []heldRule
}

func newSteerRecord(dir string, index int) (*steerRecord, error) {
	namespace, err := networkNamespace()
	if err != nil {
		return nil, err
	}
	for {
		f, err := os.CreateTemp(dir, steerPrefix+"*")
		if err != nil {
			return nil, fmt.Errorf("note which rules are ours: %w (let this process write to that directory: a daemon's is that of control.socket)", err)
		}
		r := &steerRecord{f, steerNote{Namespace: namespace, Index: index}}
		if r.lock() && r.current() { // else a sweep came first
			return r, nil
		}
		f.Close()
	}
}

// networkNamespace is that of the calling thread.
func networkNamespace() (uint64, error) {
	var s unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &s); err != nil {
		return 0, fmt.Errorf("look which network namespace this is: %w", err)
	}
	return s.Ino, nil
}

// lock reports whether nobody else has the record.
func (r *steerRecord) lock() bool {
	for {
		if err := unix.Flock(int(r.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EINTR {
			return err == nil
		}
	}
}

// current reports whether the file is still the one of its name.
func (r *steerRecord) current() bool {
	a, err1 := r.Stat()
	b, err2 := os.Lstat(r.Name())
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

func (r *steerRecord) write(rules []heldRule) error {
	r.noted.Rules = rules
	text, err := json.Marshal(r.noted)
	if err != nil {
		return err
	}
	if _, err := r.WriteAt(text, 0); err != nil {
		return fmt.Errorf("note which rules are ours: %w", err)
	}
	return r.Truncate(int64(len(text)))
}

func (r *steerRecord) remove() error { return errors.Join(os.Remove(r.Name()), r.Close()) }

// SweepSteering takes out of cards what killed processes have left there, by the records in a directory, in the network namespace of
// the calling thread. Those of other namespaces, and those it may not read, it leaves alone.
func SweepSteering(dir string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	names, err := filepath.Glob(filepath.Join(dir, steerPrefix+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			continue
		}
		if err == nil {
			err = (&steerRecord{File: f}).sweep()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("take out the rules in %s: %w (see ethtool -n, and remove the file)", name, err))
		}
	}
	return errors.Join(errs...)
}

// sweep removes what a record says, and the record, unless its process lives.
func (r *steerRecord) sweep() error {
	defer r.Close()
	if !r.lock() || !r.current() {
		return nil
	}
	text, err := io.ReadAll(io.NewSectionReader(r, 0, maxSteerRecord))
	if err != nil {
		return err
	}
	if len(text) > 0 { // else it was killed before it wrote anything
		if err := json.Unmarshal(text, &r.noted); err != nil {
			return err
		}
	}
	if namespace, err := networkNamespace(); err != nil || len(text) > 0 && namespace != r.noted.Namespace {
		return err
	}
	if err := r.noted.takeBack(); err != nil {
		return err
	}
	return os.Remove(r.Name())
}

func (n *steerNote) takeBack() (err error) {
	if len(n.Rules) == 0 {
		return nil
	}
	link, err := netlink.LinkByIndex(n.Index)
	if err != nil {
		return nil // the card is gone
	}
	d, err := findDevice(link.Attrs().Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	return d.removeRules(n.Rules)
}
