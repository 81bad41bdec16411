package config

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"
)

// TestMisspelt: every key of the full configuration, misspelt in every way that
// loses a letter or swaps two, is found where it is and, if long enough,
// recognised.
func TestMisspelt(t *testing.T) {
	data, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Load(data, &root); err != nil {
		t.Fatal(err)
	}
	keys := keysOf(&root)
	words := map[string]bool{}
	for _, k := range keys {
		words[k.Value] = true
	}
	for _, k := range keys {
		for _, typo := range typos(k.Value) {
			if !words[typo] {
				checkMisspelt(t, string(data), k, typo)
			}
		}
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

func keysOf(n *yaml.Node) []*yaml.Node {
	var keys []*yaml.Node
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			keys = append(keys, c)
			continue
		}
		keys = append(keys, keysOf(c)...)
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

// TestSizes: what a Size writes is read as the same size.
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

// TestRoundTrip: a valid Config written as YAML is read as the same Config.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawConfig(t)
		want.Complete()
		if err := want.Validate(Options{}); err != nil {
			t.Fatalf("not valid: %v", err)
		}
		text, err := yaml.Dump(document(want))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse("x.yaml", text, Options{})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(want, got, cmp.FilterValues(func(a, b Pos) bool { return true }, cmp.Ignore())); diff != "" {
			t.Errorf("(-want +got):\n%s\n%s", diff, text)
		}
	})
}

// drawConfig makes a Config with every setting drawn.
func drawConfig(t *rapid.T) *Config {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9-]{1,15}`), 4, 4, rapid.ID[string]).Draw(t, "names")
	c := Default()
	c.Region = Region{
		Size:    Size(rapid.Uint64Range(uint64(64*MiB), uint64(maxRegion-GiB)).Draw(t, "size")),
		Pages:   rapid.SampledFrom(allPages).Draw(t, "pages"),
		Frame:   rapid.SampledFrom([]int{2048, 4096}).Draw(t, "frame"),
		Extent:  256 * KiB << rapid.UintRange(0, 3).Draw(t, "extent"),
		Extents: rapid.IntRange(4, 16).Draw(t, "extents"),
		Node:    rapid.Ptr(rapid.IntRange(0, maxNode), true).Draw(t, "node"),
		Reserve: rapid.Bool().Draw(t, "reserve"),
	}
	c.Log.Level = rapid.SampledFrom(allLevels).Draw(t, "level")
	c.Workers = []Worker{NewWorker(names[0]), NewWorker(names[1])}
	c.Workers[0].CPU = rapid.Ptr(rapid.IntRange(0, maxCPU), true).Draw(t, "cpu")
	c.Workers[0].Sleep = time.Duration(rapid.Int64Range(1000, int64(maxSleep)).Draw(t, "sleep"))
	c.Flows = []Flow{drawFlow(t, names[2], names[0]), drawFlow(t, names[3], names[1])}
	for _, f := range c.Flows {
		if f.To.Layout == LayoutSlot {
			c.Region.Frame = 4096
		}
	}
	return c
}

func drawFlow(t *rapid.T, name, worker string) Flow {
	f := NewFlow(name)
	f.Worker = worker
	f.From = From{
		Interface:   name,
		Queues:      drawQueues(t),
		ZeroCopy:    rapid.SampledFrom(allZeroCopies).Draw(t, "zero copy"),
		Timestamps:  rapid.SampledFrom(allTimestamps).Draw(t, "timestamps"),
		Filter:      rapid.StringMatching(`([!-~é日"'\\]+ ?\t?)*x`).Draw(t, "filter"),
		Ring:        minRing << rapid.IntRange(0, 9).Draw(t, "ring"),
		BusyPoll:    time.Duration(rapid.Int64Range(0, 1000).Draw(t, "busy poll")) * time.Microsecond,
		Promiscuous: rapid.Bool().Draw(t, "promiscuous"),
		TakeOver:    rapid.Bool().Draw(t, "take over"),
	}
	f.To.File = "/" + name + rapid.StringMatching(`[ -.0-~é日]{0,20}`).Draw(t, "file")
	f.To.Layout = rapid.SampledFrom(allLayouts).Draw(t, "layout")
	f.To.Segment.Size = Size(rapid.Uint64Range(uint64(MiB), uint64(TiB)).Draw(t, "segment"))
	f.To.Segment.Keep = rapid.IntRange(0, 1000).Draw(t, "keep")
	f.To.Flush = time.Duration(rapid.Int64Range(int64(minFlush), int64(maxFlush)).Draw(t, "flush"))
	return f
}

func drawQueues(t *rapid.T) []int {
	if rapid.Bool().Draw(t, "all") {
		return nil
	}
	return rapid.SliceOfNDistinct(rapid.IntRange(0, maxQueue), 1, 5, rapid.ID[int]).Draw(t, "queues")
}

// document is a Config as the maps and lists of its YAML.
func document(c *Config) map[string]any {
	doc := map[string]any{
		"region":  regionDocument(&c.Region),
		"log":     map[string]any{"level": string(c.Log.Level)},
		"workers": []any{},
		"flows":   []any{},
	}
	for _, w := range c.Workers {
		m := map[string]any{"name": w.Name, "sleep": w.Sleep.String()}
		if w.CPU != nil {
			m["cpu"] = *w.CPU
		}
		doc["workers"] = append(doc["workers"].([]any), m)
	}
	for i := range c.Flows {
		doc["flows"] = append(doc["flows"].([]any), flowDocument(&c.Flows[i]))
	}
	return doc
}

func regionDocument(r *Region) map[string]any {
	m := map[string]any{
		"size": r.Size.String(), "pages": string(r.Pages), "frame": r.Frame,
		"extent": r.Extent.String(), "extents": r.Extents, "reserve": r.Reserve,
	}
	if r.Node != nil {
		m["node"] = *r.Node
	}
	return m
}

func flowDocument(f *Flow) map[string]any {
	from := map[string]any{
		"interface": f.From.Interface, "zero_copy": string(f.From.ZeroCopy), "timestamps": string(f.From.Timestamps), "filter": f.From.Filter,
		"ring": f.From.Ring, "busy_poll": f.From.BusyPoll.String(), "take_over": f.From.TakeOver, "promiscuous": f.From.Promiscuous, "queues": "all",
	}
	if f.From.Queues != nil {
		from["queues"] = f.From.Queues
	}
	to := map[string]any{
		"file": f.To.File, "layout": string(f.To.Layout), "flush": f.To.Flush.String(),
		"segment": map[string]any{"size": f.To.Segment.Size.String(), "keep": f.To.Segment.Keep},
	}
	return map[string]any{"name": f.Name, "worker": f.Worker, "from": from, "to": to}
}
