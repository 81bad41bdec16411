package lint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
)

// pkg has the fields of go list's output that the rules need.
type pkg struct {
	Name                               string
	ImportPath                         string
	Dir                                string
	Deps                               []string
	Imports, TestImports, XTestImports []string
	GoFiles, CgoFiles, IgnoredGoFiles  []string
	TestGoFiles, XTestGoFiles          []string
}

// list returns the packages that match the patterns, relative to the root of the module. It also
// lists packages that do not build.
func list(patterns ...string) ([]pkg, error) {
	cmd := exec.Command("go", append([]string{"list", "-e", "-json"}, patterns...)...)
	cmd.Dir = filepath.Join("..", "..")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read go list's answer: %w", err)
		}
		all = append(all, p)
	}
}

// files returns the paths of all Go files of the package, whatever their build
// constraints.
func (p pkg) files() []string {
	var paths []string
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.IgnoredGoFiles, p.TestGoFiles, p.XTestGoFiles) {
		paths = append(paths, filepath.Join(p.Dir, name))
	}
	return paths
}
