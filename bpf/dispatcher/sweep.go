package dispatcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// Sweep takes the programs of processes that are gone out of the dispatchers in the network namespace of the calling thread, as the next to join there would: for
// who outlives a process of ours. Where there is no BPF file system, or no such program, it does nothing.
func Sweep() error {
	err := locked(func(f *files) error {
		f.removeStale()
		found, err := filepath.Glob(filepath.Join(f.dir, "dispatch-*-*"))
		for _, dir := range found {
			err = errors.Join(err, f.removeStaleFiles(filepath.Base(dir)))
		}
		return err
	})
	if errors.Is(err, ErrNoFiles) {
		return nil
	}
	return err
}

// removeStaleFiles takes dead programs out of the dispatcher with the directory of that name, if it is on an interface.
func (f *files) removeStaleFiles(name string) error {
	var ifindex int
	var id ebpf.ProgramID
	if _, err := fmt.Sscanf(name, "dispatch-%d-%d", &ifindex, &id); err != nil || !f.hasDead(name) {
		return nil
	}
	i, err := Find(ifindex)
	if err != nil || i == nil {
		return nil // it is of another namespace, or gone
	}
	defer i.Close()
	if on, err := i.look(); err != nil || on.id != id {
		return nil
	}
	_, err = i.exchange(f, 0, nil)
	return i.about(err)
}

// hasDead reports whether a dead program is pinned in the directory of that name.
func (f *files) hasDead(name string) bool {
	for n := range Most {
		p, err := ebpf.LoadPinnedProgram(filepath.Join(f.dir, name, functionName(n)+"-prog"), nil)
		if errors.Is(err, os.ErrNotExist) {
			return false
		}
		if err != nil {
			continue
		}
		m, err := newMember(p, Settings{})
		_ = p.Close()
		if err == nil && f.dead(m.id) {
			return true
		}
	}
	return false
}
