package bugreport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/unifiedd/unifiedd/flows/config"
)

// permitted are the settings whose values a report may have. A value of any other key is replaced:
// of a misspelled one, or of a new one that is not in this list yet. TestPermitted compares the list
// with the settings that there are.
var permitted = strings.Fields(`
attach.channels[].name attach.channels[].readers[].policy attach.channels[].readers[].program attach.channels[].slot
attach.channels[].slots attach.channels[].writer attach.programs[].in attach.programs[].name attach.programs[].out
attach.programs[].user attach.socket attach.states[].allow attach.states[].allow_any_gid attach.states[].clients
attach.states[].keys attach.states[].listen attach.states[].name attach.states[].objects attach.states[].rdma
attach.states[].readers attach.states[].room attach.states[].words attach.states[].worker cluster.endpoints cluster.lease cluster.name
cluster.peers[].address cluster.peers[].group cluster.peers[].peer cluster.prefix cluster.resolver cluster.tls.authority
cluster.tls.certificate cluster.tls.key control.socket control.state flows[].from.allow
flows[].from.allow_any_gid flows[].from.attach flows[].from.beside flows[].from.buffer flows[].from.busy_poll
flows[].from.channel flows[].from.clients flows[].from.comment flows[].from.device flows[].from.engine
flows[].from.fanout flows[].from.file flows[].from.files flows[].from.filter flows[].from.filter.object
flows[].from.filter.program flows[].from.filter[].action flows[].from.filter[].match flows[].from.filter[].name
flows[].from.generate flows[].from.interface flows[].from.interfaces flows[].from.interfaces[].comment
flows[].from.interfaces[].name
flows[].from.join flows[].from.join[].group flows[].from.join[].interface flows[].from.join[].source
flows[].from.listen flows[].from.loop flows[].from.message flows[].from.method
flows[].from.paths flows[].from.paths[].listen flows[].from.paths[].rdma
flows[].from.mirror flows[].from.priority flows[].from.promiscuous flows[].from.queues flows[].from.rate
flows[].from.rdma
flows[].from.rdma.device flows[].from.rdma.ecn flows[].from.rdma.min_rate flows[].from.rdma.priority
flows[].from.rdma.traffic_class flows[].from.ring flows[].from.steer flows[].from.take_over flows[].from.timestamps
flows[].from.trusted flows[].from.verify flows[].from.window flows[].from.zero_copy flows[].name flows[].restart
flows[].stages[].moldudp64.ask flows[].stages[].moldudp64.gap flows[].stages[].moldudp64.hold
flows[].stages[].moldudp64.lines[].address flows[].stages[].moldudp64.lines[].name
flows[].stages[].moldudp64.lines[].port flows[].stages[].moldudp64.server
flows[].stages[].counter.gap flows[].stages[].counter.hold flows[].stages[].counter.lines[].address
flows[].stages[].counter.lines[].name flows[].stages[].counter.lines[].port flows[].stages[].counter.offset
flows[].stages[].counter.order flows[].stages[].counter.width

flows[].stages[].sequence.offset flows[].stages[].set.ip_destination flows[].stages[].set.ip_source
flows[].stages[].set.mac_destination flows[].stages[].set.mac_source flows[].stages[].set.port_destination
flows[].stages[].set.port_source flows[].stages[].set.vlan flows[].stages[].sum.type flows[].stages[].timestamp.offset
flows[].to.acknowledge flows[].to.allow flows[].to.allow_any_gid flows[].to.allow_any_host flows[].to.ana flows[].to.attach
flows[].to.cache flows[].to.channel flows[].to.choose flows[].to.clients flows[].to.comment flows[].to.controllers flows[].to.create flows[].to.device
flows[].to.discard flows[].to.durability flows[].to.durable flows[].to.expose flows[].to.file flows[].to.flush
flows[].to.force flows[].to.group flows[].to.group.heartbeat flows[].to.group.lag flows[].to.group.listen
flows[].to.group.members[].address
flows[].to.group.members[].certificate flows[].to.group.members[].clients flows[].to.group.members[].joins
flows[].to.group.members[].name flows[].to.group.members[].number
flows[].to.group.members[].paths flows[].to.group.members[].paths[].address flows[].to.group.members[].paths[].clients
flows[].to.group.members[].peer flows[].to.group.members[].witness
flows[].to.group.name flows[].to.group.path_mode flows[].to.group.self flows[].to.group.suspect flows[].to.hosts flows[].to.index
flows[].to.interface flows[].to.keep_free flows[].to.keys flows[].to.late flows[].to.layout flows[].to.listen
flows[].to.max_gap flows[].to.method flows[].to.mode flows[].to.namespaces[].ana flows[].to.namespaces[].device flows[].to.namespaces[].file
flows[].to.namespaces[].id flows[].to.namespaces[].read_only flows[].to.order.connect flows[].to.order.given
flows[].to.order.interface flows[].to.order.peer
flows[].to.order.counter flows[].to.order.heartbeat.every flows[].to.order.heartbeat.send[].hex
flows[].to.order.heartbeat.send[].text flows[].to.order.login.answer[].at flows[].to.order.login.answer[].bits
flows[].to.order.login.answer[].hex flows[].to.order.login.answer[].is flows[].to.order.login.answer[].mask
flows[].to.order.login.answer[].max flows[].to.order.login.answer[].min flows[].to.order.login.answer[].order
flows[].to.order.rules[].name flows[].to.order.rules[].order[].bytes flows[].to.order.rules[].order[].copy
flows[].to.order.rules[].order[].counter flows[].to.order.rules[].order[].hex flows[].to.order.rules[].order[].reverse
flows[].to.order.rules[].order[].text flows[].to.order.rules[].when[].at flows[].to.order.rules[].when[].bits
flows[].to.order.rules[].when[].hex flows[].to.order.rules[].when[].is flows[].to.order.rules[].when[].mask
flows[].to.order.rules[].when[].max flows[].to.order.rules[].when[].min flows[].to.order.rules[].when[].order
flows[].to.order.limits.burst flows[].to.order.limits.length.add flows[].to.order.limits.length.bits
flows[].to.order.limits.length.offset flows[].to.order.limits.length.order flows[].to.order.limits.length.protocol flows[].to.order.limits.price.at flows[].to.order.limits.price.bits
flows[].to.order.limits.price.is flows[].to.order.limits.price.max flows[].to.order.limits.price.min
flows[].to.order.limits.price.offset flows[].to.order.limits.rate flows[].to.order.limits.size flows[].to.order.queue
flows[].to.order.replies flows[].to.order.retry flows[].to.order.ring flows[].to.order.send_times flows[].to.order.times
flows[].to.order.zero_copy
flows[].to.owner flows[].to.pace flows[].to.participant
flows[].to.peers[].address flows[].to.peers[].flow flows[].to.peers[].name flows[].to.peers[].others
flows[].to.peers[].path_mode flows[].to.peers[].paths flows[].to.peers[].paths[].address flows[].to.peers[].paths[].others flows[].to.peers[].paths[].rdma flows[].to.peers[].peer
flows[].to.peers[].policy flows[].to.peers[].priority flows[].to.peers[].traffic_class flows[].to.place flows[].to.policy flows[].to.prepare flows[].to.queue flows[].to.rdma
flows[].to.rdma.device flows[].to.rdma.ecn flows[].to.rdma.min_rate flows[].to.rdma.priority
flows[].to.rdma.traffic_class
flows[].to.read_only flows[].to.reservations flows[].to.ring flows[].to.segment.every flows[].to.segment.keep flows[].to.segment.size
flows[].to.snaplen flows[].to.spin flows[].to.state flows[].to.subsystem flows[].to.subsystems[].allow_any_host
flows[].to.subsystems[].ana flows[].to.subsystems[].hosts flows[].to.subsystems[].namespaces[].ana
flows[].to.subsystems[].namespaces[].device flows[].to.subsystems[].namespaces[].file
flows[].to.subsystems[].namespaces[].id flows[].to.subsystems[].namespaces[].read_only flows[].to.subsystems[].subsystem
flows[].to.cache_index flows[].to.transfer flows[].to.window flows[].to.zero_copy flows[].watermarks.high flows[].watermarks.low flows[].worker
log.format log.level metrics.listen region.device region.extent region.extents region.frame region.node region.pages region.reserve
region.size tls.authority tls.certificate tls.key trace.directory trace.events user workers[].cpu workers[].name
workers[].sleep workers[].wait
`)

// keyFile matches the settings that name files with keys.
var keyFile = regexp.MustCompile(`^((cluster\.)?tls\.key|flows\[\]\.to\.keys)$`)

// clean is a configuration without secrets and comments.
type clean struct {
	text     []byte
	masked   []string // values that were replaced
	keyFiles []string // paths of files with keys
}

// readConfig returns the text of a configuration, of which a daemon reads no more than this either.
func readConfig(path string) ([]byte, error) { return readSome(path, 1<<20) }

// errUnreadable says that a configuration is no YAML. The parser's own error may have parts of it.
var errUnreadable = errors.New("the file is not valid YAML, so it is left out, since secrets in it cannot be told from settings (unifiedd check -c FILE says what is wrong)")

// readable returns a configuration without comments and without the values that are not permitted.
func readable(text []byte) (*clean, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, errUnreadable
	}
	c := &clean{}
	c.visit(&root, "", 0)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(&root), e.Close()); err != nil {
		return nil, errUnreadable
	}
	c.text = b.Bytes()
	return c, nil
}

// deepest is the depth of nodes below which everything is replaced.
const deepest = 32

// visit removes the comments of a node and replaces values that are not permitted.
func (c *clean) visit(n *yaml.Node, path string, depth int) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	if depth > deepest {
		*n = yaml.Node{Kind: yaml.ScalarNode, Value: mark}
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			below := strings.TrimPrefix(path+"."+key.Value, ".")
			c.name(key, below)
			c.visit(n.Content[i+1], below, depth+1)
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			below := path
			if item.Kind != yaml.ScalarNode {
				below += "[]"
			}
			c.visit(item, below, depth+1)
		}
	case yaml.ScalarNode:
		c.value(n, path)
	case yaml.DocumentNode:
		for _, item := range n.Content {
			c.visit(item, path, depth+1)
		}
	}
}

// word matches keys that are names. Another key may be a secret that was written in its place.
var word = regexp.MustCompile(`^[a-z_]{1,24}$`)

// name removes the comments of a key, and replaces the key if it is not a name.
func (c *clean) name(key *yaml.Node, path string) {
	key.HeadComment, key.LineComment, key.FootComment = "", "", ""
	known := slices.ContainsFunc(permitted, func(p string) bool {
		return p == path || strings.HasPrefix(p, path+".") || strings.HasPrefix(p, path+"[]")
	})
	if !known && !word.MatchString(key.Value) {
		c.mask(key)
	}
}

func (c *clean) value(n *yaml.Node, path string) {
	switch {
	case keyFile.MatchString(path):
		c.keyFiles = append(c.keyFiles, n.Value)
	case path == "cluster.endpoints" && strings.Contains(n.Value, "@"): // a password in a URL, which the daemon refuses
		c.mask(n)
	case !slices.Contains(permitted, path) && n.Value != "":
		c.mask(n)
	}
}

// mask replaces the value of a scalar.
func (c *clean) mask(n *yaml.Node) {
	c.masked = append(c.masked, n.Value)
	*n = yaml.Node{Kind: yaml.ScalarNode, Value: mark, Anchor: n.Anchor}
}

// configItems returns the files about the configuration.
func configItems(o Options, hidden *secrets) []Item {
	if o.Config == "" {
		return nil
	}
	text := func(_ context.Context, w io.Writer) error {
		text, err := readConfig(o.Config)
		if err != nil {
			return err
		}
		c, err := readable(text)
		if err != nil {
			return err
		}
		_, err = w.Write(c.text)
		return err
	}
	check := func(_ context.Context, w io.Writer) error {
		_, err := o.Load(o.Config)
		if mistakes := (*config.Errors)(nil); errors.As(err, &mistakes) {
			// Without the lines of the file, which the errors show.
			for _, p := range mistakes.Problems {
				fmt.Fprintf(w, "line %d, column %d: %s\n", p.Line, p.Column, hidden.remove([]byte(p.Message)))
			}
			return nil
		}
		if err == nil {
			fmt.Fprintln(w, "ok")
		}
		return err
	}
	return []Item{{"config.yaml", text}, {"check.txt", check}}
}
