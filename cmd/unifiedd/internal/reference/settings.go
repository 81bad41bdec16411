package reference

import (
	"fmt"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/flows/config"
)

// section is a part of the page about settings.
type section struct {
	name, text string
	rows       []row
}

// row is a setting: its key, which values it takes, its default, and what it means, in Markdown.
type row struct{ key, values, usual, meaning string }

const settingsHead = `
# Configuration

The configuration is one YAML file. ` + "`unifiedd run -c FILE`" + ` reads it. ` + "`unifiedd check -c FILE`" + ` reports every mistake in it at
once, with line, column and the probable intention. ` + "`unifiedd doctor -c FILE`" + ` says whether this machine has what the file
asks for. ` + "`unifiedd reload`" + ` [applies a changed file](../how-to/reload.md). A short file is enough:

` + "```yaml" + `
flows:
  - name: feed
    from: {interface: eth1, filter: "udp and dst port 5000"}
    to: {file: /var/lib/unifiedd/feed}
` + "```" + `

Sizes are a number with ` + "`KiB`, `MiB` or `GiB`" + `; times are a number with ` + "`us`, `ms`, `s`, `m` or `h`" + `. ` + "`packaging/unifiedd.yaml`" + `
is an example to start from.
`

// Settings returns the page about the configuration.
func Settings() string {
	var b strings.Builder
	b.WriteString(made + settingsHead)
	for _, s := range slices.Concat(daemonSections, fromSections, toSections) {
		fmt.Fprintf(&b, "\n## %s\n\n", s.name)
		if s.text != "" {
			b.WriteString(s.text + "\n\n")
		}
		if len(s.rows) > 0 {
			b.WriteString("| key | values | default | meaning |\n| --- | --- | --- | --- |\n")
		}
		for _, r := range s.rows {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.key, r.values, r.usual, r.meaning)
		}
	}
	b.WriteString("\n## Keys by kind of flow\n\nStatus and metrics name the kind of a flow. Besides the keys that name its ends, a flow of a kind may have:\n")
	for _, k := range kinds {
		fmt.Fprintf(&b, "\n- `%s`: %s. `%s`\n", k.kind, k.what, strings.Join(config.KeysOf(k.kind), "`, `"))
	}
	return b.String()
}

// kinds are the kinds of flows, with what they do.
var kinds = []struct {
	kind config.Kind
	what string
}{
	{config.KindNetworkStorage, "packets of an interface to files or a device"},
	{config.KindNetworkRDMA, "packets of an interface to peers"},
	{config.KindNetworkAttach, "packets of an interface to an attached program"},
	{config.KindNetworkOrder, "orders that rules make of packets of an interface, to an exchange"},
	{config.KindNetworkNull, "packets of an interface, counted"},
	{config.KindRDMAStorage, "messages of clients to a log"},
	{config.KindRDMARDMA, "messages of clients to peers"},
	{config.KindRDMAAttach, "messages of clients to an attached program"},
	{config.KindRDMAState, "messages of clients to a state"},
	{config.KindRDMANull, "messages of clients, acknowledged"},
	{config.KindStorageRDMA, "blocks of a file or device to clients"},
	{config.KindStorageNVMe, "a file or device to NVMe hosts"},
	{config.KindStorageNetwork, "captures to an interface"},
	{config.KindStorageAttach, "blocks of a file or device to an attached program"},
	{config.KindStorageState, "records of a log to a state"},
	{config.KindAttachStorage, "messages of an attached program to a log"},
	{config.KindAttachRDMA, "messages of an attached program to peers"},
	{config.KindAttachOrder, "orders of an attached program to an exchange"},
	{config.KindAttachState, "messages of an attached program to a state"},
	{config.KindAttachNull, "messages of an attached program, acknowledged"},
	{config.KindChannelRDMA, "messages of a channel to the same channel of peers"},
	{config.KindRDMAChannel, "messages of a peer's channel to the same channel here"},
	{config.KindNullStorage, "generated packets to files or a device"},
	{config.KindNullRDMA, "generated packets to peers"},
	{config.KindNullAttach, "generated packets to an attached program"},
	{config.KindNullNull, "generated packets, counted"},
	{config.KindWitness, "the vote of a group's member without records"},
}
