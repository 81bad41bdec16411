package flows

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// haltState is which kill switches are on. It is in a file, so that a daemon that comes back, however the one before
// has ended, lets nothing leave that was stopped.
type haltState struct {
	All   bool            `json:"all"`   // of flows that Flows does not name, also of those that a reload adds
	Flows map[string]bool `json:"flows"` // by name: the switch of this flow
}

// stopped reports whether the switch of a flow is on.
func (s *haltState) stopped(flow string) bool {
	if on, named := s.Flows[flow]; named {
		return on
	}
	return s.All
}

// set turns the switch of a flow, or all of them.
func (s *haltState) set(flow string, on bool) {
	switch {
	case flow == AllOrders:
		s.All, s.Flows = on, map[string]bool{}
	case on == s.All:
		delete(s.Flows, flow)
	default:
		s.Flows[flow] = on
	}
}

// HaltFile returns the file in a state directory in which the daemon of a control socket keeps its kill switches: daemons
// of one host may share the directory.
func HaltFile(directory, socket string) string {
	return filepath.Join(directory, "orders"+strings.ReplaceAll(filepath.Clean(socket), "/", "-"))
}

// readHalts reads the file. If it is not there, all switches are off. If it cannot be read they are on: nobody knows
// what was stopped.
func readHalts(path string) (haltState, error) {
	off := haltState{Flows: map[string]bool{}}
	if path == "" {
		return off, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return off, nil
	}
	var s *haltState
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && (s == nil || s.Flows == nil) {
		err = errors.New("it has no state of the kill switch")
	}
	if err != nil {
		on := haltState{All: true, Flows: map[string]bool{}}
		return on, fmt.Errorf("the kill switch is on, as its state cannot be read: %s: %w (look at the file, then: unifiedd orders resume %s)", path, err, AllOrders)
	}
	return *s, nil
}

// write replaces the file, so that the new one is there after a failure of power.
func (s *haltState) write(path string) (err error) {
	if path == "" {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	directory := filepath.Dir(path)
	if err := os.Mkdir(directory, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.CreateTemp(directory, filepath.Base(path)+".")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // it may not be there
		}
	}()
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(directory)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
