package lint

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the import path of the repository.
const Module = "github.com/unifiedd/unifiedd"

// layer is a part of the tree and the parts it may import besides itself and
// internal. Parts are directories; the longest that fits a package is its part.
type layer struct {
	part string
	may  []string
}

// layers is the picture in docs/architecture.md as a table.
var layers = []layer{
	{"internal", nil},
	{"umem", nil},
	{"bpf/filter", nil},
	{"bpf", []string{"bpf/filter"}},
	{"xdp", []string{"umem", "bpf", "bpf/filter"}},
	{"nvme", []string{"umem"}},
	{"rdma", []string{"umem"}},
	{"rdma/measure", nil},
	{"rdma/connect", []string{"umem", "rdma", "rdma/measure"}},
	{"rdma/verbs", []string{"umem", "rdma"}},
	{"rdma/roce", []string{"umem", "rdma", "xdp", "bpf", "bpf/filter"}},
	{"flows/config", []string{"umem", "bpf/filter"}},
	{"flows", []string{"flows/config", "umem", "bpf", "bpf/filter", "xdp", "nvme", "rdma", "rdma/connect", "rdma/measure", "rdma/verbs", "rdma/roce"}},
	{"selftests", []string{"flows", "flows/config", "umem", "bpf", "bpf/filter", "xdp", "nvme", "rdma", "rdma/connect", "rdma/measure", "rdma/verbs", "rdma/roce"}},
	{"cmd", []string{"flows", "flows/config", "umem", "bpf", "bpf/filter", "xdp", "nvme", "rdma", "rdma/connect", "rdma/measure", "rdma/verbs", "rdma/roce"}},
}

// onlyIn names modules of others that only one part may import.
var onlyIn = map[string]string{
	"github.com/spf13/cobra": "cmd",
}

// testOnly names packages that no program may link. The tree's own are given
// without the module path.
var testOnly = []string{"testing", Module + "/internal/testenv", Module + "/internal/testenv/setting", Module + "/umem/porttest",
	Module + "/rdma/connect/internal/transcript",
	Module + "/selftests/daemon"}

// partOf returns the layer a package of ours belongs to; ok is false for a
// package outside every layer.
func partOf(path string) (layer, bool) {
	rel := strings.TrimPrefix(path, Module+"/")
	var best layer
	for _, l := range layers {
		if (rel == l.part || strings.HasPrefix(rel, l.part+"/")) && len(l.part) > len(best.part) {
			best = l
		}
	}
	return best, best.part != ""
}

// badImports names each import of p, in tests too, that points up or sideways.
func badImports(p pkg) []string {
	from, ok := partOf(p.ImportPath)
	if !ok {
		return []string{fmt.Sprintf("%s is in no layer: add it to the table in internal/lint/layers.go", p.ImportPath)}
	}
	var bad []string
	for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
		if why := from.refuses(path); why != "" {
			bad = append(bad, fmt.Sprintf("%s imports %s: %s", p.ImportPath, path, why))
		}
	}
	return bad
}

// refuses says why a package of the layer may not import path, or "".
func (l layer) refuses(path string) string {
	for module, part := range onlyIn {
		if l.part != part && (path == module || strings.HasPrefix(path, module+"/")) {
			return "only " + part + " may"
		}
	}
	if !strings.HasPrefix(path, Module+"/") {
		return ""
	}
	to, ok := partOf(path)
	if !ok || to.part == "internal" || to.part == l.part || slices.Contains(l.may, to.part) {
		return ""
	}
	return fmt.Sprintf("imports point down, and %s is not below %s", to.part, l.part)
}
