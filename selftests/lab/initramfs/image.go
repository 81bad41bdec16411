// Package initramfs makes the file system that the lab guest starts from: the program that is its
// first process, the modules for the devices and the channel to the host, in the order of loading,
// and the setup.
package initramfs

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// Image has the contents of the file system.
type Image struct {
	// Init is the program, linked statically.
	Init []byte
	// KernelModules is the directory of the kernel's modules, with modules.dep.
	KernelModules string
	// Modules must exist, Optional may.
	Modules, Optional []string
	// Setup is the setup. Write adds the order of the modules.
	Setup wire.Setup
}

// Write writes the archive, uncompressed: the emulator copies it into memory at
// once, and the guest would have to decompress it.
func (i Image) Write(w io.Writer) error {
	c, err := readCatalogue(i.KernelModules)
	if err != nil {
		return err
	}
	files, err := c.order(i.Modules, i.Optional)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(w, 1<<20)
	a := &archive{w: buffered}
	for _, dir := range []string{wire.ModulesDir, "/proc", "/sys", "/dev", "/host", "/over", "/root"} {
		a.dir(dir)
	}
	a.file("/init", i.Init)
	if err := i.modules(a, c, files); err != nil {
		return err
	}
	if err := a.close(); err != nil {
		return fmt.Errorf("write the initramfs: %w", err)
	}
	return buffered.Flush()
}

// modules adds the modules, and the setup that lists them.
func (i Image) modules(a *archive, c *catalogue, files []string) error {
	setup := i.Setup
	for _, file := range files {
		content, err := c.read(file)
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(filepath.Base(file), ".ko")
		setup.Modules = append(setup.Modules, name)
		a.file(filepath.Join(wire.ModulesDir, name), content)
	}
	text, err := json.Marshal(setup)
	if err != nil {
		return fmt.Errorf("write the guest's setup: %w", err)
	}
	a.file(wire.SetupFile, text)
	return nil
}
