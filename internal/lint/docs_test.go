package lint

import (
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

// TestConfigurationIsDocumented: docs/reference/configuration.md has exactly the keys of the sample that
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
	text := readTree(t, "docs", "reference", "configuration.md")
	sameNames(t, "docs/reference/configuration.md", tableKeys(text, `[a-z0-9_.\[\]]+`), real)
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

// TestDocumentLengths: no page grows beyond what people read, and all pages together do not either. Generated pages do
// not count.
func TestDocumentLengths(t *testing.T) {
	const most, mostOfAll = 6_000, 40_000 // words
	all := 0
	for _, name := range pages(t) {
		text := readTree(t, name)
		if strings.Contains(text, "DO NOT EDIT") {
			continue
		}
		n := len(strings.Fields(text))
		if name != "CHANGELOG.md" && n > most {
			t.Errorf("%s has %d words, more than %d", name, n, most)
		}
		if strings.HasPrefix(name, "docs/") || name == "README.md" {
			all += n
			t.Logf("%5d %s", n, name)
		}
	}
	if all > mostOfAll {
		t.Errorf("the documents have %d words, more than %d", all, mostOfAll)
	}
}

// TestDocumentLinks: each link from one document to another has a target, and its anchor is a heading there. The index leads
// to each page.
func TestDocumentLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([A-Za-z0-9_./-]*)(?:#([^)]*))?\)`)
	index := make(map[string]bool)
	for _, file := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(readTree(t, file), -1) {
			target := file
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(file), m[1])
			}
			if file == "docs/README.md" {
				index[target] = true
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %v", file, err)
			} else if m[2] != "" && !slices.Contains(anchors(readTree(t, target)), m[2]) {
				t.Errorf("%s: %s has no heading #%s", file, target, m[2])
			}
		}
	}
	for _, file := range pages(t) {
		if strings.HasPrefix(file, "docs/") && strings.Count(file, "/") == 2 && !index[file] {
			t.Errorf("docs/README.md does not lead to %s", file)
		}
	}
}

// TestTargetsInDocuments: the Makefile has each target that a document names, and scripts/long.txt each suite.
func TestTargetsInDocuments(t *testing.T) {
	makefile, suites := readTree(t, "Makefile"), readTree(t, "scripts", "long.txt")
	for _, name := range pages(t) {
		text := readTree(t, name)
		for _, m := range regexp.MustCompile("`make ([a-z-]+)").FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+m[1]+": ") {
				t.Errorf("%s: the Makefile has no target %s", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile("SUITE=([a-z0-9.-]*[a-z0-9])").FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile("(?m)^" + regexp.QuoteMeta(m[1]) + " +\\|").MatchString(suites) {
				t.Errorf("%s: there is no suite %s", name, m[1])
			}
		}
	}
}

// pages are the documents, relative to the top of the tree.
func pages(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		testenv.Must(t, err)
		for _, file := range files {
			name, err := filepath.Rel(root, file)
			testenv.Must(t, err)
			all = append(all, name)
		}
	}
	return all
}

// anchors are the names under which a link reaches the headings of a document.
func anchors(text string) (all []string) {
	for _, m := range regexp.MustCompile("(?m)^#+ (.*)$").FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

// TestChangelog: a release has at most 15 lines, none longer than 200 characters, so that people read them.
func TestChangelog(t *testing.T) {
	release, lines := "", map[string]int{}
	for line := range strings.Lines(readTree(t, "CHANGELOG.md")) {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "## "); is {
			release = name
			continue
		}
		if release == "" || line == "" {
			continue
		}
		if lines[release]++; lines[release] == 16 {
			t.Errorf("%s has more than 15 lines", release)
		}
		if len(line) > 200 {
			t.Errorf("%s has a line of %d characters: %.60s", release, len(line), line)
		}
	}
	if lines["[0.1.0]"] == 0 {
		t.Errorf("the releases are %v, without 0.1.0", lines)
	}
}
