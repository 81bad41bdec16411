package lint

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func readTree(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	testenv.Must(t, err)
	return string(text)
}

// readAll returns the text of all files that match.
func readAll(t *testing.T, pattern ...string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(append([]string{root}, pattern...)...))
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	var all strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		testenv.Must(t, err)
		all.Write(text)
	}
	return all.String()
}

// sameNames fails the test if a document and the code name different things.
func sameNames(t *testing.T, document string, documented, real []string) {
	t.Helper()
	if len(real) == 0 {
		t.Fatal("found nothing to be documented")
	}
	for _, name := range real {
		if !slices.Contains(documented, name) {
			t.Errorf("%s says nothing of %s", document, name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(real, name) {
			t.Errorf("%s describes %s, which does not exist", document, name)
		}
	}
}

// tableKeys returns the first cells of a document's tables that match the expression.
func tableKeys(text, expression string) (keys []string) {
	for _, m := range regexp.MustCompile("(?m)^\\| `("+expression+")` \\|").FindAllStringSubmatch(text, -1) {
		keys = append(keys, m[1])
	}
	return keys
}

// TestConfigurationIsDocumented: docs/configuration.md has exactly the keys of the sample that
// shows every key.
func TestConfigurationIsDocumented(t *testing.T) {
	var sample any
	testenv.Must(t, yaml.Unmarshal([]byte(readTree(t, "flows", "config", "testdata", "full.yaml")), &sample))
	keys := make(map[string]bool)
	leaves(sample, "", keys)
	var real []string
	for key := range keys {
		real = append(real, key)
	}
	text := readTree(t, "docs", "configuration.md")
	sameNames(t, "docs/configuration.md", tableKeys(text, `[a-z0-9_.\[\]]+`), real)
}

// leaves collects the paths of all scalars, and lists of scalars.
func leaves(node any, path string, keys map[string]bool) {
	switch n := node.(type) {
	case map[string]any:
		for key, value := range n {
			leaves(value, strings.TrimPrefix(path+"."+key, "."), keys)
		}
	case []any:
		for _, value := range n {
			if _, ok := value.(map[string]any); !ok {
				keys[path] = true
				return
			}
			leaves(value, path+"[]", keys)
		}
	default:
		keys[path] = true
	}
}

// TestMetricsAreDocumented: docs/metrics.md has exactly the metrics, with their labels, that the
// program has.
func TestMetricsAreDocumented(t *testing.T) {
	text := readTree(t, "docs", "metrics.md")
	var real []string
	described := regexp.MustCompile(`describe\("([a-z_]+)", "[^"]*"((?:, "[a-z_]+")*)\)`)
	source := readAll(t, "cmd", "unifiedd", "internal", "metrics", "*.go")
	for _, m := range described.FindAllStringSubmatch(source, -1) {
		name, labels := "unifiedd_"+m[1], strings.TrimPrefix(strings.ReplaceAll(m[2], `"`, ""), ", ")
		real = append(real, name)
		if row := fmt.Sprintf("| `%s` | %s", name, labels); !strings.Contains(text, row) {
			t.Errorf("docs/metrics.md has no row that begins %q", row)
		}
	}
	sameNames(t, "docs/metrics.md", tableKeys(text, `unifiedd_[a-z_]+`), real)
}

// mostLines is the longest that a document may be, so that people still read it.
var mostLines = map[string]int{
	"README.md": 150, "docs/architecture.md": 270, "docs/glossary.md": 120, "docs/configuration.md": 632, "docs/feeds.md": 165, "docs/orders.md": 215, "docs/order-rules.md": 120, "docs/metrics.md": 350,
	"docs/capture-format.md": 290, "docs/protocol.md": 400, "docs/filters.md": 195, "docs/layouts.md": 150, "docs/rdma.md": 275,
	"docs/nvme-of.md": 150, "docs/replay.md": 150, "docs/lab.md": 150, "docs/operations.md": 200, "docs/lab-tests.md": 190,
}

// TestDocumentLengths: no document grows beyond its limit, and no decision beyond 60 lines.
func TestDocumentLengths(t *testing.T) {
	limits := maps.Clone(mostLines)
	decisions, err := filepath.Glob(filepath.Join(root, "docs", "adr", "0*.md"))
	if err != nil || len(decisions) == 0 {
		t.Fatalf("%d decisions: %v", len(decisions), err)
	}
	for _, path := range decisions {
		limits[filepath.Join("docs", "adr", filepath.Base(path))] = 60
	}
	for name, most := range limits {
		if n := strings.Count(readTree(t, name), "\n"); n > most {
			t.Errorf("%s has %d lines, more than %d", name, n, most)
		}
	}
}

// TestDocumentLinks: each link from one document to another has a target.
func TestDocumentLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([A-Za-z0-9_./-]+)(?:#[^)]*)?\)`)
	for _, pattern := range []string{"*.md", filepath.Join("docs", "*.md")} {
		files, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, file := range files {
			text, err := os.ReadFile(file)
			testenv.Must(t, err)
			for _, m := range link.FindAllStringSubmatch(string(text), -1) {
				if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
}
