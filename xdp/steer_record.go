package xdp

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/record"
)

// steerPrefix is what the names of records begin with.
const steerPrefix = "unifiedd-steering-"

// steerNote is what the record of a Steering says.
type steerNote struct {
	Namespace uint64 // of the network: the inode of its file
	Index     int    // of the interface in it
	Rules     []heldRule
}

// newSteerRecord makes a record, and what is to be in it of an interface that has no rules of ours yet.
func newSteerRecord(dir string, index int) (*record.File, steerNote, error) {
	namespace, err := networkNamespace()
	if err != nil {
		return nil, steerNote{}, err
	}
	r, err := record.New(filepath.Join(dir, steerPrefix))
	if err != nil {
		err = fmt.Errorf("note which rules are ours: %w (let this process write to that directory: a daemon's is that of control.socket)", err)
	}
	return r, steerNote{Namespace: namespace, Index: index}, err
}

// networkNamespace is that of the calling thread.
func networkNamespace() (uint64, error) {
	var s unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &s); err != nil {
		return 0, fmt.Errorf("look which network namespace this is: %w", err)
	}
	return s.Ino, nil
}

// SweepSteering takes out of cards what killed processes have left there, by the records in a directory, in the network namespace of
// the calling thread. Those of other namespaces, and those it may not read, it leaves alone.
func SweepSteering(dir string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := record.Sweep(filepath.Join(dir, steerPrefix), takeRulesBack); err != nil {
		return fmt.Errorf("take rules out of cards (see ethtool -n): %w", err)
	}
	return nil
}

// takeRulesBack takes out what a record says, if it is about this network namespace.
func takeRulesBack(r *record.File) (done bool, err error) {
	var n steerNote
	noted, err := r.Get(&n)
	if err != nil || !noted {
		return err == nil, err
	}
	if namespace, err := networkNamespace(); err != nil || namespace != n.Namespace {
		return false, err
	}
	err = n.takeBack()
	return err == nil, err
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
