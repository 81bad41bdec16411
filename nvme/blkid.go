package nvme

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// blkid asks blkid(8) what is on a device, where it is installed. It ends with
// status 2 when it found nothing, 8 when it found contradictory things, and others
// when it is a version that cannot probe.
func blkid(path string) ([]string, error) {
	program := findBlkid()
	if program == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "-p", "-o", "export", path).Output()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return blkidFound(string(out)), nil
	case errors.As(err, &exit) && exit.ExitCode() == 8:
		return []string{"signatures of several things"}, nil
	case errors.As(err, &exit) && exit.Exited():
		return nil, nil
	}
	return nil, fmt.Errorf("ask blkid what is on it: %w", err)
}

// findBlkid looks where it usually is, also when sbin is not in the path.
func findBlkid() string {
	if p, err := exec.LookPath("blkid"); err == nil {
		return p
	}
	for _, p := range []string{"/usr/sbin/blkid", "/sbin/blkid"} {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return ""
}

// blkidFound reads the lines TYPE=… and PTTYPE=…
func blkidFound(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case "TYPE":
			out = append(out, value+" (as blkid calls it)")
		case "PTTYPE":
			out = append(out, "a partition table of type "+value)
		}
	}
	return out
}
