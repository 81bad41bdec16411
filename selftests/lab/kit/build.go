package kit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// initPackage is the guest's first process.
const initPackage = "github.com/unifiedd/unifiedd/selftests/lab/lab-init"

// buildInit builds the guest's first process without cgo, so that it needs no library.
func buildInit(ctx context.Context) (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "unifiedd-lab-")
	if err != nil {
		return nil, fmt.Errorf("make a directory to build in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "init")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, initPackage)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest's first process: %w\n%s", err, out)
	}
	return os.ReadFile(program)
}
