package documents

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestParts: each part of a configuration that a page shows is accepted in a whole one. Those of docs/how-to/paths.md are in
// TestPaths.
func TestParts(t *testing.T) {
	f := newFiles(t)
	names, err := filepath.Glob(root + "/docs/*/*.md")
	testenv.Must(t, err)
	n := 0
	for _, name := range append(names, root+"/README.md") {
		text := fences.ReplaceAllString(read(t, name), "")
		for _, part := range indented.FindAllString(text, -1) {
			part = strings.TrimSuffix(strings.ReplaceAll("\n"+part, "\n    ", "\n")[1:], "\n")
			if strings.HasSuffix(name, "/paths.md") || !regexp.MustCompile(`(?m)^(from|to|tls|region):`).MatchString(part) {
				continue
			}
			n++
			for _, line := range alternatives(part) {
				f.write(t, "shown.yaml", whole(line), 0o644)
				run(t, f.wrapper, "check", "-c", filepath.Join(f.dir, "shown.yaml"))
			}
		}
	}
	if n < 5 {
		t.Errorf("found %d parts of configurations", n)
	}
}

// alternatives are the lines of a part, if each is one for itself, or all of it.
func alternatives(part string) []string {
	if lines := strings.Split(part, "\n"); len(lines) > 1 && strings.HasPrefix(lines[1], "to:") {
		return lines
	}
	return []string{part}
}

// whole adds to a part what a configuration has besides.
func whole(part string) string {
	part = strings.ReplaceAll(part, "hosts: [...]", "allow_any_host: true")
	key, value, _ := strings.Cut(part, ":")
	flow := map[string]string{"from": "to: {discard: true}", "to": "from: {file: /var/lib/unifiedd/image}"}
	switch {
	case strings.Contains(value, "peers:"):
		flow["to"] = "from: {generate: 256, rate: 1}"
	case strings.HasPrefix(value, " {file:"):
		flow["to"] = "from: {interface: eth1}"
	}
	if flow[key] == "" {
		return part + "\nflows:\n  - {name: shown, from: {rdma: \"roce:eth2\", listen: \":7471\"}, to: {file: /var/lib/unifiedd/shown}}\n"
	}
	return fmt.Sprintf("flows:\n  - name: shown\n    %s\n    %s\n", flow[key], strings.ReplaceAll(part, "\n", "\n    "))
}
