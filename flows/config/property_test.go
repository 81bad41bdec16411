package config

import (
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	environment "github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// mostTypos is how many misspellings of a key a run of TestMisspelt has. Each is a parse of the full configuration.
const mostTypos = 3

// TestMisspelt: the parser finds every misspelt key of the full configuration at its place and, if
// the key is long enough, suggests the right one. The misspellings lose a letter or swap two; a run has some of each key,
// which follow from a seed.
func TestMisspelt(t *testing.T) {
	data, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Load(data, &root); err != nil {
		t.Fatal(err)
	}
	keys := keysOf(&root, "", map[string]bool{})
	words := map[string]bool{}
	for _, k := range keys {
		words[k.Value] = true
	}
	seed := environment.Seed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	for _, k := range keys {
		all := typos(k.Value)
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, typo := range all[:min(mostTypos, len(all))] {
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

// TestRoundTrip: parsing a valid Config that was written as YAML returns the same Config.
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
		if diff := cmp.Diff(want, got, anyPlace, byValue); diff != "" {
			t.Errorf("(-want +got):\n%s\n%s", diff, text)
		}
	})
}

// drawConfig draws a Config with random values for all settings.
func drawConfig(t *rapid.T) *Config {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9-]{1,15}`), 4, 4, rapid.ID[string]).Draw(t, "names")
	c := Default()
	c.Region = Region{
		Size:    Size(rapid.Uint64Range(uint64(64*MiB), uint64(maxRegion-GiB)).Draw(t, "size")),
		Pages:   rapid.SampledFrom(allPages).Draw(t, "pages"),
		Frame:   rapid.SampledFrom([]int{2048, 4096}).Draw(t, "frame"),
		Extent:  256 * KiB << rapid.UintRange(0, 3).Draw(t, "extent"),
		Extents: rapid.IntRange(10, 16).Draw(t, "extents"),
		Node:    rapid.Ptr(rapid.IntRange(0, maxNode), true).Draw(t, "node"),
		Reserve: rapid.Bool().Draw(t, "reserve"),
	}
	if c.Region.Pages != PagesOrdinary {
		c.Region.Device = rapid.SampledFrom([]string{"", "/dev/dax0.0"}).Draw(t, "region on")
	}
	c.Log.Level = rapid.SampledFrom(allLevels).Draw(t, "level")
	c.Workers = []Worker{NewWorker(names[0]), NewWorker(names[1])}
	c.Workers[0].CPU = rapid.Ptr(rapid.IntRange(0, maxCPU), true).Draw(t, "cpu")
	c.Workers[0].Sleep = time.Duration(rapid.Int64Range(1000, int64(maxSleep)).Draw(t, "sleep"))
	c.Flows = []Flow{drawFlow(t, names[2], names[0]), drawFlow(t, names[3], names[1])}
	c.Attach.Programs = []Program{
		{Name: "reader", User: "r", In: 32 * GiB}, // room for the windows of all clients
		{Name: "writer", User: "1000", Out: Size(rapid.Uint64Range(1, uint64(maxProgram)).Draw(t, "out"))},
	}
	c.Attach.Channels = []Channel{{
		Name: "book", Writer: "writer", Slots: minSlots << rapid.IntRange(0, 10).Draw(t, "slots"), Slot: channelUnit * Size(rapid.IntRange(1, 64).Draw(t, "slot")),
		Readers: []ChannelReader{{"reader", rapid.SampledFrom(channelPolicies).Draw(t, "policy")}},
	}}
	for i, name := range names[2:] {
		c.Attach.States = append(c.Attach.States, State{
			Name: "state-" + name, Objects: rapid.IntRange(1, 1000).Draw(t, "objects"), Room: Size(rapid.IntRange(1, 1024).Draw(t, "room")), Readers: []string{"reader"},
			Remote: StateRemote{RDMA: "roce:state0", Listen: fmt.Sprintf("state:%d", 1000+i), Clients: rapid.IntRange(1, maxClients).Draw(t, "clients"), AllowAnyGID: rapid.Bool().Draw(t, "any")},
		})
	}
	for _, f := range c.Flows {
		one := Channel{Name: f.From.Channel + f.To.Channel, Slots: defaultSlots, Slot: defaultSlot}
		switch f.Kind() {
		case KindChannelRDMA:
			one.Writer = "writer"
			c.Attach.Channels = append(c.Attach.Channels, one)
		case KindRDMAChannel:
			one.Readers = []ChannelReader{{"reader", PolicyWait}}
			c.Attach.Channels = append(c.Attach.Channels, one)
		}
	}
	c.TLS = TLS{"/cert", "/key", "/authority"}
	for _, f := range c.Flows {
		if f.To.Layout == LayoutSlot {
			c.Region.Frame = 4096
		}
	}
	for i := range c.Flows {
		if to := &c.Flows[i].To; c.Region.Device != "" && to.Cache > 0 {
			to.CacheIndex = rapid.SampledFrom([]string{"", "/var/lib/index"}).Draw(t, "index of the cache")
		}
	}
	for i := range c.Flows {
		if f := &c.Flows[i]; hasSum(f) { // limits the parts that are not acknowledged
			f.From.Window = min(f.From.Window, 64)
		}
	}
	c.Complete() // the length of messages determines the number of extents
	needs, _ := c.needs()
	c.Region.Extents = max(c.Region.Extents, needs.Extents)
	c.Region.Size = max(c.Region.Size, (2*Size(c.Region.Extents)*c.Region.Extent + Size(needs.Frames*c.Region.Frame)).roundUp(c.Region.Pages.Bytes()))
	return c
}

func hasSum(f *Flow) bool {
	return slices.ContainsFunc(f.Stages, func(s Stage) bool { return s.Sum != nil })
}

func drawFlow(t *rapid.T, name, worker string) Flow {
	kinds := slices.Sorted(maps.Values(kindOf))
	kind := rapid.SampledFrom(kinds).Draw(t, "kind")
	f := NewFlowOf(kind, name)
	f.Worker = worker
	switch kind {
	case KindNetworkStorage, KindNetworkRDMA, KindNetworkNull, KindNetworkAttach, KindNetworkOrder:
		f.From = drawPackets(t, name)
		drawSteered(t, &f.From)
		drawBeside(t, &f.From)
		if kind == KindNetworkStorage {
			drawEngine(t, &f)
		}
	case KindNullStorage, KindNullRDMA, KindNullNull, KindNullAttach:
		f.From.Generate = Size(rapid.IntRange(minGenerated, 2048-MessageOverhead).Draw(t, "generate"))
		f.From.Rate = rapid.IntRange(0, maxRate).Draw(t, "rate")
	case KindRDMAStorage, KindRDMARDMA, KindRDMANull, KindRDMAAttach:
		drawClients(t, name, &f.From)
	case KindRDMAState:
		drawClients(t, name, &f.From)
		f.From.Message = max(f.From.Message, updateHeader+KiB)
	case KindAttachState:
		f.From.Attach, f.From.Message, f.From.Window = "writer", 2048-MessageOverhead, minEntries
	case KindAttachStorage, KindAttachRDMA, KindAttachNull, KindAttachOrder:
		f.From.Attach = "writer"
		f.From.Message = Size(rapid.IntRange(1, 2048-MessageOverhead).Draw(t, "message"))
		f.From.Window = minEntries << rapid.IntRange(0, 6).Draw(t, "window")
	case KindChannelRDMA:
		f.From.Channel, f.To.RDMA = "out-"+name, "mlx5_0"
		f.To.Peers = []Peer{{Name: "peer", Address: "peer:7471", Flow: name, Policy: rapid.SampledFrom(channelPolicies).Draw(t, "policy")}}
		if rapid.Bool().Draw(t, "several paths") {
			f.To.Peers[0].Paths, f.To.Peers[0].PathMode = []Path{{RDMA: "mlx5_1", Address: "peer:7471"}}, PathStandby
		}
		return f
	case KindRDMAChannel:
		f.From.RDMA, f.From.Listen = "roce:r"+name[:min(len(name), 14)], name+".example:7471"
		f.From.Allow, f.From.AllowAnyGID = drawAllowed(t), rapid.Bool().Draw(t, "any GID")
		if rapid.Bool().Draw(t, "several paths") {
			f.From.Paths = []Path{{RDMA: "mlx5_1", Listen: name + ".example:7472"}}
		}
		f.To.Channel = "in-" + name
		return f
	case KindWitness:
		f.To.File, f.To.Replicas = "/votes/"+name, drawGroup(t)
		return f
	default:
		f.From.File = "/served/" + name
	}
	switch kind {
	case KindNetworkNull, KindRDMANull, KindNullNull, KindAttachNull:
		f.To.Discard = true
	case KindNetworkAttach, KindRDMAAttach, KindNullAttach:
		f.To.Attach = "reader"
		f.To.Queue = minEntries << rapid.IntRange(0, 6).Draw(t, "queue")
		f.To.Policy = rapid.SampledFrom(allPolicies).Draw(t, "policy")
		if kind == KindNetworkAttach && rapid.Bool().Draw(t, "feed") {
			f.Stages = []Stage{drawFeed(t)}
		}
	case KindNetworkStorage, KindRDMAStorage, KindNullStorage, KindAttachStorage:
		drawStore(t, name, &f.To, kind)
		if f.From.Engine == EnginePacket {
			f.To.Layout = LayoutPacked
		}
		if engine, _ := f.ChosenEngine(); kind == KindNetworkStorage && engine == EngineXDP && !f.To.Index && rapid.Bool().Draw(t, "feed") {
			f.Stages = []Stage{drawFeed(t)}
		}
	case KindAttachOrder:
		f.To.Order = drawOrder(t, name)
	case KindNetworkOrder:
		f.To.Order = drawOrder(t, name)
		drawRules(t, f.To.Order)
		if rapid.Bool().Draw(t, "feed") {
			f.Stages = []Stage{drawFeed(t)}
		}
	case KindAttachState, KindRDMAState, KindStorageState:
		f.To.State = "state-" + name
	case KindStorageAttach:
		f.To.Attach, f.To.Queue = "reader", minEntries<<rapid.IntRange(0, 6).Draw(t, "queue")
	case KindStorageRDMA:
		drawBlocks(t, name, &f.To)
	case KindStorageNVMe:
		drawSubsystem(t, name, &f.To)
	case KindStorageNetwork:
		drawReplay(t, name, &f)
	case KindAttachRDMA:
		drawPeers(t, &f.To, kind)
	default:
		f.Stages = drawStages(t, kind)
		drawPeers(t, &f.To, kind)
	}
	if !slices.Contains([]Kind{KindStorageRDMA, KindStorageNVMe, KindStorageNetwork, KindStorageAttach, KindStorageState}, kind) && !hasSum(&f) && f.From.Engine != EnginePacket && rapid.Bool().Draw(t, "bounded") {
		f.Watermarks.High = rapid.IntRange(minHigh, 8192).Draw(t, "high")
		f.Watermarks.Low = rapid.IntRange(1, f.Watermarks.High-1).Draw(t, "low")
	}
	return f
}

// drawGroup draws a group as its witness sees it.
func drawGroup(t *rapid.T) *Replicas {
	g := &Replicas{Name: "g", Self: "w", Heartbeat: time.Millisecond, Lag: Size(rapid.Uint64Range(0, uint64(maxLag)).Draw(t, "lag"))}
	g.Suspect = time.Duration(rapid.Int64Range(int64(2*g.Heartbeat), int64(maxSuspect)).Draw(t, "suspect"))
	numbered := rapid.Bool().Draw(t, "numbered")
	for i, name := range []string{"a", "b", "w"} {
		r := Replica{Name: name, Address: name + ":7491", Witness: name == "w", Joins: rapid.Bool().Draw(t, "joins")}
		if !r.Witness {
			r.Clients = name + ":7471"
		}
		if numbered {
			r.Number = 10*(i+1) + rapid.IntRange(0, 9).Draw(t, "number")
		}
		g.Members = append(g.Members, r)
	}
	return g
}

func drawReplay(t *rapid.T, name string, f *Flow) {
	if rapid.Bool().Draw(t, "several") {
		f.From.File, f.From.Files = "", []string{"/captures/" + name, "/captures/b"}
	}
	f.From.Loop = rapid.SampledFrom([]int{Endless, 1, 7, maxLoop}).Draw(t, "loop")
	f.From.Filter = rapid.StringMatching(`([!-~é日"'\\]+ ?\t?)*x`).Draw(t, "filter")
	f.To.Interface = name
	f.To.ZeroCopy = rapid.SampledFrom(allZeroCopies).Draw(t, "zero copy")
	f.To.Ring = MinRing << rapid.IntRange(0, 9).Draw(t, "ring")
	f.To.Spin = time.Duration(rapid.Int64Range(0, int64(maxSpin)).Draw(t, "spin"))
	f.To.Late = time.Duration(rapid.Int64Range(0, int64(maxLate)).Draw(t, "late"))
	f.To.MaxGap = time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "gap"))
	f.To.Pace.By = PaceBy(rapid.IntRange(int(PaceRecorded), int(PaceBits)).Draw(t, "by"))
	if f.To.Pace.By > PaceTop {
		f.To.Pace.Value = rapid.SampledFrom([]float64{0.5, 1, 3, 1500, 2.5e8, 1e9, 1234567.5}).Draw(t, "pace")
	}
}

func drawSubsystem(t *rapid.T, name string, to *To) {
	to.RDMA, to.Listen, to.Subsystem = "mlx5_0", name+".example:4420", "nqn.2026-01.com.example:"+name
	to.Window = rapid.IntRange(minDepth, maxDepth).Draw(t, "entries")
	to.Clients = rapid.IntRange(minSeats, maxClients).Draw(t, "queues")
	to.ReadOnly = rapid.Bool().Draw(t, "read only")
	if rapid.Bool().Draw(t, "keys") {
		to.Keys, to.Group = "/etc/"+name, rapid.SampledFrom(allAuthGroups).Draw(t, "group")
	}
	if rapid.Bool().Draw(t, "some hosts") {
		to.Hosts = []string{"nqn.2014-08.org.nvmexpress:uuid:1", "nqn.2014-08.org.nvmexpress:uuid:2"}
	}
	if rapid.Bool().Draw(t, "reservations") {
		to.Reservations = "/var/" + name
	}
	to.ANA = rapid.SampledFrom(allANAStates).Draw(t, "ANA state")
	to.Controllers[0] = uint16(rapid.IntRange(1, MaxController-to.Clients).Draw(t, "first controller"))
	to.Controllers[1] = uint16(rapid.IntRange(int(to.Controllers[0])+to.Clients-1, MaxController).Draw(t, "last controller"))
	to.AllowAnyHost = to.Hosts == nil && to.Keys == ""
}

// drawAllowed draws names of certificates, or nil.
func drawAllowed(t *rapid.T) []string {
	if rapid.Bool().Draw(t, "everyone") {
		return nil
	}
	return rapid.SliceOfNDistinct(rapid.StringMatching(`[!-~é日]{1,20}`), 1, 3, rapid.ID[string]).Draw(t, "allow")
}

func drawClients(t *rapid.T, name string, f *From) {
	f.RDMA, f.Listen = "roce:r"+name[:min(len(name), 14)], name+".example:7471"
	f.Message = Size(rapid.IntRange(1, 2048-MessageOverhead).Draw(t, "message"))
	f.Window = rapid.IntRange(1, maxWindow).Draw(t, "window")
	f.Clients = rapid.IntRange(1, maxClients).Draw(t, "clients")
	f.Allow, f.AllowAnyGID = drawAllowed(t), rapid.Bool().Draw(t, "any GID")
	f.Method = rapid.SampledFrom(allMethods).Draw(t, "method")
	f.Verify = f.Method == MethodWrite || rapid.Bool().Draw(t, "verify")
}

func drawBlocks(t *rapid.T, name string, to *To) {
	to.RDMA, to.Listen = "mlx5_0", name+".example:7472"
	to.Cache = Size(rapid.Uint64Range(0, uint64(64*MiB)).Draw(t, "cache"))
	to.Transfer = minTransfer * Size(rapid.IntRange(1, 1024).Draw(t, "transfer"))
	to.Window = rapid.IntRange(1, maxWindow).Draw(t, "window")
	to.Clients = rapid.IntRange(1, maxClients).Draw(t, "clients")
	to.Allow, to.AllowAnyGID = drawAllowed(t), rapid.Bool().Draw(t, "any GID")
}

func drawPeers(t *rapid.T, to *To, kind Kind) {
	to.RDMA = "mlx5_0"
	for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9-]{1,15}`), 2, maxPeers, rapid.ID[string]).Draw(t, "peers") {
		var others []string
		if rapid.Bool().Draw(t, "a group") {
			others = []string{name + ":7472", name + ":7473"}
		}
		var paths []Path
		var mode PathMode
		switch several := rapid.Bool().Draw(t, "several paths"); {
		case several && others == nil:
			paths = []Path{{RDMA: "mlx5_1", Address: name + ":7471"}, {RDMA: "mlx5_0", Address: name + ":7474"}}
			mode = rapid.SampledFrom(allPathModes).Draw(t, "path mode")
		case several:
			paths, mode = []Path{{RDMA: "mlx5_1", Address: name + ":7471", Others: []string{name + ":7475", name + ":7476"}}}, PathStandby
		}
		to.Peers = append(to.Peers, Peer{Others: others, Paths: paths, PathMode: mode, Name: name, Address: name + ":7471", Flow: name, Policy: rapid.SampledFrom(allPolicies).Draw(t, "policy")})
	}
	to.Choose = rapid.SampledFrom(allChoices).Draw(t, "choose")
	to.Queue = rapid.IntRange(1, maxPeerWait).Draw(t, "queue")
	to.Method = rapid.SampledFrom(peerMethods).Draw(t, "method")
	if slices.ContainsFunc(to.Peers, func(p Peer) bool { return p.PathMode == PathActive }) {
		to.Method = MethodSend
	}
	to.Durability = rapid.SampledFrom(logAcknowledges).Draw(t, "durability")
	to.Participant = rapid.IntRange(0, maxParticipant).Draw(t, "participant")
	if kind.relays() && to.Choose == ChooseAll {
		to.Acknowledge = rapid.SampledFrom(peerAcknowledges).Draw(t, "acknowledge")
	}
}

func drawStages(t *rapid.T, kind Kind) (all []Stage) {
	if kind == KindRDMARDMA && rapid.Bool().Draw(t, "summed") {
		return []Stage{{Sum: &Sum{rapid.SampledFrom(allSumTypes).Draw(t, "type")}}}
	}
	port := rapid.IntRange(0, maxPort)
	for range rapid.IntRange(0, 3).Draw(t, "sets") {
		v4 := rapid.Bool().Draw(t, "v4")
		all = append(all, Stage{Set: &Set{
			MACSource: drawMAC(t), MACDestination: drawMAC(t), VLAN: rapid.IntRange(1, maxVLAN).Draw(t, "vlan"),
			IPSource: drawIP(t, v4), IPDestination: drawIP(t, v4),
			PortSource: port.Draw(t, "source"), PortDestination: port.Draw(t, "destination"),
		}})
	}
	if rapid.Bool().Draw(t, "stamps") {
		at := rapid.IntRange(0, maxOffset-stampBytes).Draw(t, "offset")
		all = append(all, Stage{Sequence: &Sequence{at}}, Stage{Timestamp: &Timestamp{at + stampBytes}})
	}
	return all
}

func drawFeed(t *rapid.T) Stage {
	m := &Feed{Gap: time.Duration(rapid.Int64Range(2, int64(maxGap)).Draw(t, "gap")), Hold: rapid.IntRange(minHold, maxHold).Draw(t, "hold"), Ask: defaultAsk}
	for i := range rapid.IntRange(1, maxLines).Draw(t, "lines") {
		m.Lines = append(m.Lines, FeedLine{Name: fmt.Sprintf("line-%d", i), Address: netip.AddrFrom4([4]byte{239, 1, 1, 1}), Port: 26400 + i})
	}
	if rapid.Bool().Draw(t, "counter") {
		m.Ask = 0
		m.Hold = min(m.Hold, narrowHold)
		m.Counter = &Counter{rapid.IntRange(0, maxUDP-maxWidth).Draw(t, "offset"), 2 << rapid.IntRange(0, 2).Draw(t, "width"), rapid.SampledFrom(allByteOrders).Draw(t, "order")}
		return Stage{Counter: m}
	}
	if rapid.Bool().Draw(t, "server") {
		m.Server, m.Ask = "[2001:db8::9]:26401", m.Gap/2
	}
	return Stage{Mold: m}
}

func drawMAC(t *rapid.T) net.HardwareAddr {
	if rapid.Bool().Draw(t, "as it is") {
		return nil
	}
	mac := rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "mac")
	mac[0] &^= 1
	return mac
}

// drawIP draws a unicast address, or none.
func drawIP(t *rapid.T, v4 bool) netip.Addr {
	b := rapid.SliceOfN(rapid.Byte(), 15, 15).Draw(t, "ip")
	switch {
	case b[0] < 64:
		return netip.Addr{}
	case v4:
		return netip.AddrFrom4([4]byte{10, b[1], b[2], b[3]})
	}
	return netip.AddrFrom16([16]byte(append([]byte{0x20}, b...)))
}

func drawPackets(t *rapid.T, name string) From {
	return From{
		Interface:   name,
		Queues:      drawQueues(t),
		ZeroCopy:    rapid.SampledFrom(allZeroCopies).Draw(t, "zero copy"),
		Timestamps:  rapid.SampledFrom(allTimestamps).Draw(t, "timestamps"),
		Filter:      rapid.StringMatching(`([!-~é日"'\\]+ ?\t?)*x`).Draw(t, "filter"),
		Ring:        MinRing << rapid.IntRange(0, 9).Draw(t, "ring"),
		BusyPoll:    time.Duration(rapid.Int64Range(0, 1000).Draw(t, "busy poll")) * time.Microsecond,
		Promiscuous: rapid.Bool().Draw(t, "promiscuous"),
		TakeOver:    rapid.Bool().Draw(t, "take over"),
		Join:        drawJoins(t),
	}
}

// drawJoins draws multicast groups, or none.
func drawJoins(t *rapid.T) (all []Join) {
	for i := range rapid.IntRange(0, 3).Draw(t, "joins") {
		j := Join{Group: netip.AddrFrom4([4]byte{byte(rapid.IntRange(224, 239).Draw(t, "group")), byte(i), 1, 1})}
		if rapid.Bool().Draw(t, "source") {
			j.Source, j.Interface = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), "feed.100"
		}
		all = append(all, j)
	}
	return all
}

// drawEngine draws a flow's engine, and what only that engine has.
func drawEngine(t *rapid.T, f *Flow) {
	from := &f.From
	from.Engine = rapid.SampledFrom(allEngines).Draw(t, "engine")
	if rapid.Bool().Draw(t, "any ring") {
		from.Ring = 0
	}
	if from.Engine != EngineXDP {
		from.Buffer = Size(rapid.Int64Range(int64(minBuffer), int64(maxBuffer)).Draw(t, "buffer"))
	}
	if from.Engine == EnginePacket {
		*from = From{Interface: from.Interface, Engine: from.Engine, Buffer: from.Buffer, Fanout: rapid.SampledFrom([]string{"", from.Interface}).Draw(t, "fanout"), ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware,
			Filter: from.Filter, Join: from.Join, Promiscuous: from.Promiscuous, Priority: DefaultPriority}
	}
}

// drawBeside draws a flow that joins a dispatcher, or leaves the flow unchanged.
func drawBeside(t *rapid.T, f *From) {
	f.Priority = DefaultPriority
	if rapid.Bool().Draw(t, "beside") && f.Timestamps != TimestampsHardware {
		f.Beside, f.Priority = BesideLibxdp, rapid.IntRange(0, math.MaxInt32).Draw(t, "priority")
	}
}

// drawSteered draws a flow that a card steers, or leaves the flow unchanged.
func drawSteered(t *rapid.T, f *From) {
	if f.Queues != nil && rapid.Bool().Draw(t, "steered") {
		f.Steer, f.Filter = rapid.SampledFrom(allSteers).Draw(t, "steer"), "udp dst port 5000"
	}
}

func drawStore(t *rapid.T, name string, to *To, kind Kind) {
	to.File = "/" + name + rapid.StringMatching(`[ -.0-~é日]{0,20}`).Draw(t, "file")
	to.Layout = rapid.SampledFrom(allLayouts).Draw(t, "layout")
	to.Segment.Size = Size(rapid.Uint64Range(uint64(MiB), uint64(TiB)).Draw(t, "segment"))
	to.Segment.Keep = rapid.SampledFrom([]int{0, 2, 3, 1000}).Draw(t, "keep")
	to.KeepFree = rapid.SampledFrom([]Room{0, -1, -99, 1, Room(10 * GiB)}).Draw(t, "keep_free")
	to.Mode = rapid.SampledFrom([]fs.FileMode{0, 0o600, 0o640, 0o777}).Draw(t, "mode")
	to.Comment = rapid.SampledFrom([]string{"", "case 7: é日", "of two\nlines"}).Draw(t, "comment")
	to.Owner = rapid.SampledFrom([]string{"", "root", "capture:adm", ":adm", "0:0"}).Draw(t, "owner")
	to.Flush = time.Duration(rapid.Int64Range(int64(minFlush), int64(maxFlush)).Draw(t, "flush"))
	to.Durable = time.Duration(rapid.Int64Range(int64(minDurable), int64(time.Hour)).Draw(t, "durable"))
	if kind == KindAttachStorage {
		to.Layout = LayoutPacked
	}
	if !kind.Log() {
		to.Snaplen = Size(rapid.Uint64Range(0, uint64(maxSnaplen)).Draw(t, "snaplen"))
	} else {
		to.Acknowledge = rapid.SampledFrom(logAcknowledges).Draw(t, "acknowledge")
		to.Durable = rapid.SampledFrom([]time.Duration{GroupCommit, to.Durable}).Draw(t, "how durable")
	}
}

func drawQueues(t *rapid.T) []int {
	if rapid.Bool().Draw(t, "all") {
		return nil
	}
	return rapid.SliceOfNDistinct(rapid.IntRange(0, maxQueue), 1, 5, rapid.ID[int]).Draw(t, "queues")
}

// document returns a Config as the maps and lists of its YAML.
func document(c *Config) map[string]any {
	doc := map[string]any{
		"region":  regionDocument(&c.Region),
		"tls":     map[string]any{"certificate": c.TLS.Certificate, "key": c.TLS.Key, "authority": c.TLS.Authority},
		"log":     map[string]any{"level": string(c.Log.Level)},
		"workers": []any{},
		"flows":   []any{},
		"attach":  map[string]any{"programs": []any{}},
	}
	for _, p := range c.Attach.Programs {
		a := doc["attach"].(map[string]any)
		a["programs"] = append(a["programs"].([]any), map[string]any{"name": p.Name, "user": p.User, "in": p.In.String(), "out": p.Out.String()})
	}
	var channels []any
	for _, h := range c.Attach.Channels {
		one := map[string]any{"name": h.Name, "slots": h.Slots, "slot": h.Slot.String()}
		if h.Writer != "" {
			one["writer"] = h.Writer
		}
		var readers []any
		for _, r := range h.Readers {
			readers = append(readers, map[string]any{"program": r.Program, "policy": string(r.Policy)})
		}
		one["readers"] = readers
		channels = append(channels, one)
	}
	doc["attach"].(map[string]any)["channels"] = channels
	var states []any
	for _, s := range c.Attach.States {
		r := &s.Remote
		states = append(states, map[string]any{
			"name": s.Name, "objects": s.Objects, "room": s.Room.String(), "readers": s.Readers, "rdma": r.RDMA, "listen": r.Listen, "clients": r.Clients, "allow_any_gid": r.AllowAnyGID,
		})
	}
	doc["attach"].(map[string]any)["states"] = states
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
	if r.Device != "" {
		m["device"] = r.Device
	}
	return m
}
