package reference

import (
	"fmt"
	"strings"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/metrics"
)

const metricsHead = `
# Metrics

` + "`unifiedd`" + ` serves these metrics in Prometheus' format on ` + "`metrics.listen`" + ` and on the control socket, at ` + "`/metrics`" + `, with those of the
Go runtime and of the process. Counters start at zero when a flow starts. [Reasons](reasons.md) has each reason of a loss and
what to do about it. The label ` + "`interface`" + ` of a flow from several interfaces has their names, joined by ", ".

| metric | kind | labels | meaning |
| --- | --- | --- | --- |
`

const metricsTail = "| `unifiedd_rdma_port_…`, `unifiedd_rdma_hw_…` | untyped | interface, device | " +
	"Counters of an RDMA port on the interface of a flow, with the kernel's names, since the device was made. A capture does not see that traffic. " +
	"`port_rcv_data` and `port_xmit_data` are in units of four bytes. |\n" +
	"| `unifiedd_rdma_roce_…_total` | counter | interface, device | Counters of RoCE in software on an interface: packets, retries, and what was dropped, malformed and copied, by reason. |\n"

// Metrics returns the page about metrics, which says of each what a scrape says.
func Metrics() string {
	var b strings.Builder
	b.WriteString(made + metricsHead)
	for _, m := range metrics.Table() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind(), strings.Join(m.Labels, ", "), strings.ReplaceAll(m.Help, "|", `\|`))
	}
	b.WriteString(metricsTail)
	return b.String()
}
