package config

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/internal/testenv"
	environment "github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// TestMisspelt: the parser finds every misspelt key of the full configuration at its place and, if
// the key is long enough, suggests the right one. The misspellings lose a letter or swap two; a run has one of each key,
// which follows from a seed, because each is a parse of the full configuration.
func TestMisspelt(t *testing.T) {
	data, err := os.ReadFile("testdata/full.yaml")
	testenv.Must(t, err)
	var root yaml.Node
	testenv.Must(t, yaml.Load(data, &root))
	keys := keysOf(&root, "", map[string]bool{})
	words := map[string]bool{}
	for _, k := range keys {
		words[k.Value] = true
	}
	seed := environment.Seed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	for _, k := range keys {
		all := slices.DeleteFunc(typos(k.Value), func(typo string) bool { return words[typo] })
		checkMisspelt(t, string(data), k, all[random.IntN(len(all))])
	}
}

func checkMisspelt(t *testing.T, text string, key *yaml.Node, typo string) {
	t.Helper()
	lines := strings.Split(text, "\n")
	line := []rune(lines[key.Line-1])
	before, after := line[:key.Column-1], line[key.Column-1+len(key.Value):]
	lines[key.Line-1] = string(before) + typo + string(after)
	_, err := Parse("x.yaml", []byte(strings.Join(lines, "\n")), Options{})
	if err == nil {
		t.Fatalf("%s for %s is accepted", typo, key.Value)
	}
	want := Pos{"x.yaml", key.Line, key.Column}
	found := slices.ContainsFunc(err.(*Errors).Problems, func(p Problem) bool {
		return p.Pos() == want && strings.Contains(p.Message, quote(typo)) && p.Hint == didYouMean(key.Value)
	})
	if !found {
		t.Errorf("%s for %s at %s gave:\n%v", typo, key.Value, want, err)
	}
}

// keysOf returns the keys below a node, the first one of each setting.
func keysOf(n *yaml.Node, path string, seen map[string]bool) (keys []*yaml.Node) {
	if n.Kind != yaml.MappingNode {
		for _, c := range n.Content {
			keys = append(keys, keysOf(c, path, seen)...)
		}
		return keys
	}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		inner := join(path, key.Value)
		if !seen[inner] {
			keys = append(keys, key)
		}
		seen[inner] = true
		keys = append(keys, keysOf(n.Content[i+1], inner, seen)...)
	}
	return keys
}

func typos(word string) []string {
	var all []string
	for i := range word {
		if len(word) > 2 {
			all = append(all, word[:i]+word[i+1:])
		}
		if i > 0 && word[i] != word[i-1] {
			all = append(all, word[:i-1]+word[i:i+1]+word[i-1:i]+word[i+1:])
		}
	}
	return all
}

func TestDistance(t *testing.T) {
	word := rapid.StringOfN(rapid.RuneFrom([]rune("abcé")), 0, 8, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d, longest := distance(a, b), max(len([]rune(a)), len([]rune(b)))
		if d != distance(b, a) || (d == 0) != (a == b) || d > longest {
			t.Errorf("distance is %d, the other way %d", d, distance(b, a))
		}
	})
}

// TestSizes: parsing the text of a Size returns the same Size.
func TestSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Size(rapid.Uint64().Draw(t, "bytes"))
		s >>= rapid.UintRange(0, 63).Draw(t, "down")
		s <<= rapid.UintRange(0, 63).Draw(t, "up")
		got, err := parseSize(s.String())
		if err != nil || got != s {
			t.Errorf("%s is %d, not %d: %v", s, got, s, err)
		}
	})
}
