package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// begin makes the first mounts, reads the setup and loads the modules.
func begin() (wire.Setup, error) {
	var setup wire.Setup
	if err := mountAll("/", early); err != nil {
		return setup, err
	}
	text, err := os.ReadFile(wire.SetupFile)
	if err == nil {
		err = json.Unmarshal(text, &setup)
	}
	if err != nil {
		return setup, fmt.Errorf("read the setup: %w", err)
	}
	for _, address := range setup.Unbound {
		if err := leaveUnbound(address); err != nil {
			return setup, err
		}
	}
	for _, name := range setup.Modules {
		if err := load(filepath.Join(wire.ModulesDir, name)); err != nil {
			return setup, err
		}
	}
	return setup, nil
}

// leaveUnbound keeps drivers from a PCI device by selecting a driver that does not exist
// (Documentation/ABI/testing/sysfs-bus-pci, driver_override).
func leaveUnbound(address string) error {
	if err := os.WriteFile("/sys/bus/pci/devices/"+address+"/driver_override", []byte("none"), 0); err != nil {
		return fmt.Errorf("keep drivers from PCI device %s: %w", address, err)
	}
	return nil
}

func load(file string) error {
	module, err := os.ReadFile(file)
	if err == nil {
		err = unix.InitModule(module, "")
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load module %s: %w", filepath.Base(file), err)
	}
	return nil
}

// settle sets up the guest's system: its root directory, its name, its interfaces.
func settle(setup wire.Setup) error {
	if err := unix.Sethostname([]byte(setup.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := mountRoot(setup, release()); err != nil {
		return err
	}
	if err := enterRoot(); err != nil {
		return fmt.Errorf("enter the root directory: %w", err)
	}
	return nameCards(setup.Cards)
}

// enterRoot makes the new root directory that of the mount namespace, as switch_root(8) does. With chroot(2) alone a process
// that enters the mounts of a container has the old one.
func enterRoot() error {
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return os.Chdir("/")
}

// release returns the output of uname -r.
func release() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(text))
}
