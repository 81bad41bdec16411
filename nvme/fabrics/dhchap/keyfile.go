package dhchap

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
)

// longestFile is the largest size of a keys file, in bytes.
const longestFile = 1 << 20

// ReadKeys reads the keys of hosts from a file that only its owner may read or write. Each line
// has a host's NQN, its key, and optionally the controller's key for that host. Lines that begin
// with # are comments. A file without keys is valid. valid checks each NQN. Errors name the line,
// and never a key.
func ReadKeys(path string, valid func(nqn string) bool) (map[string]Keys, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("keys of hosts: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("keys of hosts: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("keys of hosts: %s is no file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("keys of hosts: others than its owner may read or write %s, mode %04o: chmod 0600 %[1]s", path, info.Mode().Perm())
	case info.Size() > longestFile:
		return nil, fmt.Errorf("keys of hosts: %s has %d bytes, at most %d are read", path, info.Size(), longestFile)
	}
	b, err := io.ReadAll(io.LimitReader(f, longestFile))
	if err != nil {
		return nil, fmt.Errorf("keys of hosts: %w", err)
	}
	return parseKeys(path, b, valid)
}

func parseKeys(path string, b []byte, valid func(string) bool) (map[string]Keys, error) {
	all := map[string]Keys{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, longestFile)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		name, k, err := parseLine(fields, valid)
		if _, twice := all[name]; err == nil && twice {
			err = fmt.Errorf("host %s has a line already", name)
		}
		if err != nil {
			return nil, fmt.Errorf("keys of hosts: %s:%d: %w", path, n, err)
		}
		all[name] = k
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("keys of hosts: %s: %w", path, err)
	}
	return all, nil
}

func parseLine(fields []string, valid func(string) bool) (name string, k Keys, err error) {
	if len(fields) < 2 || len(fields) > 3 {
		return "", k, fmt.Errorf("%d words: say the host's NQN, its key, and the controller's key for it, if it has one", len(fields))
	}
	if name = fields[0]; !valid(name) {
		return "", k, fmt.Errorf("%q is no NQN", name)
	}
	if k.Host, err = ParseSecret(fields[1]); err != nil {
		return "", k, fmt.Errorf("host %s: %w", name, err)
	}
	if len(fields) < 3 {
		return name, k, nil
	}
	controller, err := ParseSecret(fields[2])
	switch {
	case err != nil:
		return "", k, fmt.Errorf("controller of host %s: %w", name, err)
	case bytes.Equal(controller.key, k.Host.key):
		return "", k, fmt.Errorf("host %s and its controller have the same key: a proof of the one would be one of the other", name)
	}
	k.Controller = &controller
	return name, k, nil
}
