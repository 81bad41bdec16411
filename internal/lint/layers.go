package lint

import (
	"fmt"
	"slices"
	"strings"
)

// module is the import path of the repository.
const module = "github.com/unifiedd/unifiedd"

// layer is a part of the tree and the parts that it may import besides itself and internal. Parts
// are directories. A package belongs to the longest part that matches its path.
type layer struct {
	part string
	may  []string
}

// layers is the picture in docs/background/architecture.md as a table.
var layers = []layer{
	{"internal", nil},
	{"umem", nil},
	{"bpf/filter", nil},
	{"bpf/dispatcher", nil},
	{"bpf", []string{"bpf/filter", "bpf/dispatcher"}},
	{"bpf/mirror", nil},
	{"xdp", []string{"umem", "bpf", "bpf/filter", "bpf/dispatcher"}},
	{"nvme", []string{"umem"}},
	{"nvme/fabrics", nil},
	{"rdma", []string{"umem"}},
	{"rdma/lifetime", nil},
	{"rdma/mr", []string{"umem", "rdma"}},
	{"rdma/msg", []string{"umem", "rdma", "rdma/mr"}},
	{"rdma/connect", []string{"umem", "rdma"}},
	{"rdma/ep", []string{"umem", "rdma"}},
	{"rdma/verbs", []string{"umem", "rdma", "rdma/lifetime"}},
	{"rdma/roce", []string{"umem", "rdma", "rdma/lifetime", "xdp", "bpf", "bpf/filter"}},
	{"rdma/providers", []string{"umem", "rdma", "rdma/verbs", "rdma/roce"}},
	{"flows/config", []string{"umem", "bpf/filter", "flows/cluster"}},
	{"flows/protocol", nil},
	{"flows/cluster", []string{"flows/protocol"}},
	{"flows/cluster/etcd", []string{"flows/cluster"}},
	{"flows/status", []string{"flows/config", "flows/protocol"}},
	{"flows/journal", []string{"flows/protocol"}},
	{"flows/stage", nil},
	{"flows/feed", nil},
	{"flows/rule", []string{"flows/config"}},
	{"flows/group", nil},
	{"flows/trace", nil},
	{"flows/worker", []string{"flows/config", "flows/status"}},
	{"flows/segment", []string{"flows/config", "flows/status", "flows/journal", "nvme"}},
	{"flows/layout", []string{"flows/protocol", "flows/status", "umem"}},
	{"flows/attach", []string{"flows/attach/wire", "umem"}},
	{"flows/attach/wire", nil},
	{"flows/attached", []string{"flows/attach/wire"}},
	{"flows/stream", []string{"flows/protocol", "umem", "rdma", "rdma/connect", "rdma/mr", "rdma/msg"}},
	{"flows/state", []string{"flows/attach/wire", "flows/protocol", "flows/stream", "umem", "rdma", "rdma/connect"}},
	{"flows/replica", []string{"flows/group", "flows/journal", "flows/stream", "flows/protocol", "umem", "rdma", "rdma/connect", "rdma/msg"}},
	{"flows/fanout", []string{"flows/stream", "flows/protocol", "umem", "rdma", "rdma/connect"}},
	{"flows/blocks", []string{"flows/stream", "flows/protocol", "umem", "nvme", "rdma", "rdma/connect", "rdma/ep", "rdma/mr"}},
	{"flows/channel", []string{"flows/attach", "flows/attach/wire", "flows/stream", "flows/protocol", "umem", "rdma", "rdma/connect", "rdma/ep"}},
	{"flows/transfer", []string{"flows/stream", "flows/protocol", "umem", "nvme", "rdma", "rdma/connect", "rdma/ep", "rdma/mr"}},
	{"flows/nvmet", []string{"flows/stream", "umem", "nvme", "nvme/fabrics", "rdma", "rdma/ep"}},
	{"flows/device", []string{"flows/config", "flows/protocol", "flows/status", "flows/stream", "umem", "xdp", "rdma", "rdma/connect", "rdma/providers", "rdma/roce"}},
	{"flows/pipeline", []string{"flows/attach", "flows/cluster", "flows/config", "flows/device", "flows/stage", "flows/state", "flows/status", "flows/trace", "flows/worker", "umem", "nvme", "rdma/connect"}},
	{"flows/source/afxdp", []string{"flows/config", "flows/device", "flows/layout", "flows/pipeline", "flows/status", "flows/worker", "umem", "bpf", "bpf/filter", "bpf/mirror", "xdp"}},
	{"flows/source/journal", []string{"flows/journal", "flows/pipeline", "flows/state", "flows/status", "flows/worker"}},
	{"flows/source/packet", []string{"flows/config", "flows/device", "flows/layout", "flows/pipeline", "flows/status", "flows/worker", "umem", "bpf/filter"}},
	{"flows/source/message", []string{"flows/config", "flows/device", "flows/journal", "flows/pipeline", "flows/protocol", "flows/status", "flows/stream", "flows/worker", "umem", "rdma/connect"}},
	{"flows/source/generator", []string{"flows/layout", "flows/pipeline", "flows/status", "flows/worker", "umem"}},
	{"flows/source/program", []string{"flows/attach", "flows/attach/wire", "flows/journal", "flows/layout", "flows/pipeline", "flows/protocol", "flows/status", "flows/worker", "umem"}},
	{"flows/sink/program", []string{"flows/attach", "flows/attach/wire", "flows/config", "flows/pipeline", "flows/protocol", "flows/status", "flows/worker", "umem"}},
	{"flows/sink/order", []string{"flows/attach", "flows/attach/wire", "flows/config", "flows/pipeline", "flows/rule", "flows/stage", "flows/status", "flows/worker", "umem", "xdp", "rdma", "rdma/roce"}},
	{"flows/sink/feed", []string{"flows/config", "flows/feed", "flows/pipeline", "flows/stage", "flows/status", "umem"}},
	{"flows/sink/state", []string{"flows/pipeline", "flows/protocol", "flows/state", "flows/status", "flows/worker", "umem"}},
	{"flows/sink/disk", []string{"flows/config", "flows/layout", "flows/pipeline", "flows/segment", "flows/status", "flows/worker", "umem", "nvme"}},
	{"flows/sink/peers", []string{"flows/config", "flows/device", "flows/fanout", "flows/layout", "flows/pipeline", "flows/protocol", "flows/status", "flows/stream", "flows/worker", "umem", "rdma/connect"}},
	{"flows/sink/discard", []string{"flows/pipeline", "flows/status", "flows/worker", "umem"}},
	{"flows/member", []string{"flows/cluster", "flows/config", "flows/device", "flows/group", "flows/journal", "flows/pipeline", "flows/protocol", "flows/replica", "flows/sink/disk", "flows/source/message", "flows/status", "flows/stream", "umem", "rdma/connect"}},
	{"flows/relay", []string{"flows/config", "flows/pipeline", "flows/protocol", "flows/source/message", "flows/stage", "flows/status", "umem"}},
	{"flows/replay", []string{"flows/config", "flows/pipeline", "flows/status", "flows/worker", "umem", "bpf/filter", "xdp", "nvme"}},
	{"flows/serve", []string{"flows/attach", "flows/attach/wire", "flows/blocks", "flows/channel", "flows/config", "flows/device", "flows/pipeline", "flows/protocol", "flows/status", "flows/stream", "flows/nvmet", "flows/worker", "umem", "nvme", "nvme/fabrics", "rdma", "rdma/connect", "rdma/roce"}},
	{"flows/client", slices.Concat(devices, []string{"flows/attach/wire", "flows/cluster", "flows/protocol", "flows/stream", "flows/blocks"})},
	{"flows", slices.Concat(devices, parts, []string{"flows/attached"})}, // tests attach
	{"docs/examples", []string{"umem", "flows/client", "flows/attached"}},
	{"selftests", slices.Concat(devices, parts, []string{"flows/cluster/etcd", "flows", "flows/client", "flows/attached", "docs/examples"})},
	{"cmd", slices.Concat(devices, parts, []string{"flows/cluster/etcd", "flows", "flows/client"})},
}

// devices are the parts that move frames. parts are the parts that make up a flow.
var (
	devices = []string{"umem", "bpf", "bpf/filter", "bpf/dispatcher", "bpf/mirror", "xdp", "nvme", "nvme/fabrics", "rdma", "rdma/connect", "rdma/ep", "rdma/lifetime", "rdma/mr", "rdma/msg", "rdma/verbs", "rdma/roce", "rdma/providers"}
	parts   = []string{"flows/attach", "flows/cluster", "flows/attach/wire", "flows/source/program", "flows/sink/program", "flows/config", "flows/protocol", "flows/status", "flows/trace", "flows/layout", "flows/worker", "flows/segment", "flows/device", "flows/pipeline", "flows/relay", "flows/replay", "flows/serve",
		"flows/source/afxdp", "flows/source/journal", "flows/source/packet", "flows/source/message", "flows/source/generator", "flows/sink/disk", "flows/sink/peers", "flows/sink/discard", "flows/sink/feed", "flows/sink/order", "flows/sink/state", "flows/feed", "flows/rule", "flows/state", "flows/group", "flows/member", "flows/replica", "flows/journal", "flows/stage", "flows/stream", "flows/fanout", "flows/blocks", "flows/channel", "flows/nvmet", "flows/transfer"}
)

// inTests has the additional parts that the tests of a part may import: the real devices under it.
var inTests = map[string][]string{
	"nvme":                 {"xdp"},
	"rdma/providers":       {"rdma/connect", "rdma/msg"},
	"rdma":                 {"rdma/verbs"}, // of rdma/cm, in the guest
	"rdma/verbs":           {"rdma/connect", "rdma/mr", "rdma/msg"},
	"rdma/roce":            {"rdma/msg"},
	"flows/stream":         {"flows/cluster", "rdma/roce", "rdma/providers"},
	"flows/fanout":         {"rdma/roce", "rdma/providers"},
	"flows/replica":        {"rdma/roce"},
	"flows/blocks":         {"rdma/roce", "rdma/providers"},
	"flows/channel":        {"rdma/roce"},
	"flows/transfer":       {"rdma/roce", "rdma/providers"},
	"flows/nvmet":          {"rdma/roce", "rdma/providers"},
	"flows/client":         {"flows/cluster/etcd"}, // an example
	"flows/state":          {"flows/client", "flows/cluster", "rdma/roce"},
	"flows/source/journal": {"flows/attach/wire", "flows/config", "flows/protocol", "umem"},
	"flows/sink/disk":      {"flows/journal", "flows/protocol"},
	"flows/sink/feed":      {"flows/sink/discard"},
	"cmd":                  {"selftests"}, // how to start a daemon
}

// onlyIn names third-party modules that only one part may import.
var onlyIn = map[string]string{
	"charm.land/bubbletea/v2": "cmd",
	"github.com/spf13/cobra":  "cmd",
	"go.etcd.io/etcd":         "flows/cluster/etcd", // no flow waits for a registry
	"go.etcd.io/raft/v3":      "flows/group",
}

// testOnly names packages that no program may link. The tree's own are given without the module
// path.
var testOnly = []string{"testing", module + "/internal/testenv", module + "/internal/testenv/authority", module + "/internal/testenv/setting", module + "/internal/testenv/wronguse", module + "/internal/testenv/etcdserver", module + "/internal/testenv/ruledcard", module + "/umem/porttest", module + "/rdma/roce/rocetest",
	module + "/rdma/connect/internal/transcript",
	module + "/internal/testenv/captures", module + "/internal/golden",
	module + "/selftests/daemon"}

// partOf returns the layer of one of our packages; ok is false for a package outside every layer.
func partOf(path string) (layer, bool) {
	rel := strings.TrimPrefix(path, module+"/")
	var best layer
	for _, l := range layers {
		if (rel == l.part || strings.HasPrefix(rel, l.part+"/")) && len(l.part) > len(best.part) {
			best = l
		}
	}
	return best, best.part != ""
}

// badImports lists each import of p, including those of its tests, that points up or sideways.
func badImports(p pkg) []string {
	from, ok := partOf(p.ImportPath)
	if !ok {
		return []string{fmt.Sprintf("%s is in no layer: add it to the table in internal/lint/layers.go", p.ImportPath)}
	}
	tests := layer{from.part, slices.Concat(from.may, inTests[from.part])}
	return slices.Concat(from.complaints(p, p.Imports), tests.complaints(p, slices.Concat(p.TestImports, p.XTestImports)))
}

// complaints lists each of a package's imports that the layer refuses.
func (l layer) complaints(p pkg, imports []string) (bad []string) {
	for _, path := range imports {
		if why := l.refuses(path); why != "" {
			bad = append(bad, fmt.Sprintf("%s imports %s: %s", p.ImportPath, path, why))
		}
	}
	return bad
}

// refuses returns why a package of the layer may not import path, or "".
func (l layer) refuses(path string) string {
	for module, part := range onlyIn {
		if l.part != part && (path == module || strings.HasPrefix(path, module+"/")) {
			return "only " + part + " may"
		}
	}
	if !strings.HasPrefix(path, module+"/") {
		return ""
	}
	to, ok := partOf(path)
	if !ok || to.part == "internal" || to.part == l.part || slices.Contains(l.may, to.part) {
		return ""
	}
	return fmt.Sprintf("imports point down, and %s is not below %s", to.part, l.part)
}
