package initramfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// catalogue has the facts about a kernel's modules from depmod and the kernel's build
// (modules.dep(5)).
type catalogue struct {
	dir     string              // of the modules
	path    map[string]string   // by name: file below dir
	needs   map[string][]string // by name: files below dir
	builtin map[string]bool
}

// readCatalogue reads modules.dep and, if it exists, the list of built-in modules.
func readCatalogue(dir string) (*catalogue, error) {
	deps, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("read what the kernel's modules need: %w", err)
	}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read what the kernel has built in: %w", err)
	}
	return parseCatalogue(dir, string(deps), string(builtin)), nil
}

func parseCatalogue(dir, deps, builtin string) *catalogue {
	c := &catalogue{dir: dir, path: make(map[string]string), needs: make(map[string][]string), builtin: make(map[string]bool)}
	for line := range strings.Lines(deps) {
		if file, needs, ok := strings.Cut(line, ":"); ok {
			c.path[moduleName(file)] = file
			c.needs[moduleName(file)] = strings.Fields(needs)
		}
	}
	for line := range strings.Lines(builtin) {
		c.builtin[moduleName(strings.TrimSpace(line))] = true
	}
	return c
}

// moduleName is the kernel's name of the module in a file.
func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// order returns the files of the named modules and of all modules they need, each after those it
// needs. A name that is neither a module nor built in is left out if optional has it, and is an
// error otherwise.
func (c *catalogue) order(names, optional []string) ([]string, error) {
	var files []string
	for _, name := range slices.Concat(names, optional) {
		name = moduleName(name)
		switch {
		case c.path[name] != "":
			files = c.add(files, c.path[name])
		case c.builtin[name] || slices.Contains(optional, name):
		case len(c.builtin) == 0:
			// This kernel does not list its built-in modules.
		default:
			return nil, fmt.Errorf("the kernel in %s has no module %s", c.dir, name)
		}
	}
	return files, nil
}

// add appends file after the files that it needs, unless files has it already.
func (c *catalogue) add(files []string, file string) []string {
	if slices.Contains(files, file) {
		return files
	}
	for _, need := range c.needs[moduleName(file)] {
		if need != file {
			files = c.add(files, need)
		}
	}
	if slices.Contains(files, file) {
		return files
	}
	return append(files, file)
}

// read returns a module's content, decompressed.
func (c *catalogue) read(file string) ([]byte, error) {
	path := filepath.Join(c.dir, file)
	tools := map[string]string{".xz": "xz", ".zst": "zstd", ".gz": "gzip"}
	tool := tools[filepath.Ext(path)]
	if tool == "" {
		return os.ReadFile(path)
	}
	cmd := exec.Command(tool, "-dc", path)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	content, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("decompress %s with %s: %w %s", file, tool, err, stderr.Bytes())
	}
	return content, nil
}
