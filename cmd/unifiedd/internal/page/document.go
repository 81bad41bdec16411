package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/recent"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/latency"
)

// Document is what the page shows at one moment. Numbers are those of /metrics.
type Document struct {
	Version  string           `json:"version"`
	Time     time.Time        `json:"time"`
	Up       float64          `json:"up_seconds"`
	Region   Region           `json:"region"`
	Flows    []Flow           `json:"flows"`
	Programs []Program        `json:"programs,omitempty"`
	Channels []Channel        `json:"channels,omitempty"`
	States   []State          `json:"states,omitempty"`
	Findings []Finding        `json:"findings"`
	Messages []recent.Message `json:"messages"`
}

// Region is the memory that devices share.
type Region struct {
	Bytes  uint64 `json:"bytes"`
	Pages  string `json:"pages"`
	Frames int64  `json:"frames"`
	Owners []Part `json:"owners"` // they add up to Frames
}

// Part is a named number.
type Part struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// Flow is one flow.
type Flow struct {
	Name      string   `json:"name"`
	State     string   `json:"state"`
	Up        bool     `json:"up"`
	Why       string   `json:"why,omitempty"` // only for the owner
	From      string   `json:"from"`
	To        string   `json:"to"`
	Unit      string   `json:"unit"`
	Rate      float64  `json:"rate"`
	Bits      float64  `json:"bits"`
	Packets   uint64   `json:"packets"`
	Bytes     uint64   `json:"bytes"`
	Lost      []Part   `json:"lost"` // by reason, without those that are 0
	Copied    uint64   `json:"copied_bytes"`
	Kernel    uint64   `json:"kernel_copied_bytes"`
	Held      *int64   `json:"held,omitempty"` // frames between its ends; nil: not counted
	Latency   *Latency `json:"latency,omitempty"`
	Disk      *Disk    `json:"disk,omitempty"`
	Peers     []Peer   `json:"peers,omitempty"`
	Group     string   `json:"group,omitempty"`
	Histogram []Bin    `json:"histogram,omitempty"`
}

// Latency has the times from the arrival of a packet or message to its end, in nanoseconds.
type Latency struct {
	P50  int64 `json:"p50_ns"`
	P99  int64 `json:"p99_ns"`
	P999 int64 `json:"p99_9_ns"`
	Max  int64 `json:"max_ns"`
}

// Bin counts the packets that took less than a time, and not less than half of it.
type Bin struct {
	Below int64 `json:"below_ns"`
	Count int64 `json:"count"`
}

// Disk is the end of a flow on a disk.
type Disk struct {
	Written uint64 `json:"written_bytes"`
	Durable uint64 `json:"durable_packets"`
	Errors  []Part `json:"errors"`
	Free    uint64 `json:"free_bytes,omitempty"`
}

// Peer is an RDMA peer of a flow.
type Peer struct {
	Name         string `json:"name"`
	State        string `json:"state"`
	Acknowledged uint64 `json:"acknowledged"`
	Waiting      uint64 `json:"waiting"`
	Lost         []Part `json:"lost"`
}

// Program is a program of this host that may attach.
type Program struct {
	Name     string `json:"name"`
	Attached bool   `json:"attached"`
	Attaches uint64 `json:"attaches"`
	Ended    []Part `json:"ended"` // by reason
}

// Channel is a channel between programs, or to peers.
type Channel struct {
	Name    string   `json:"name"`
	Writer  string   `json:"writer,omitempty"` // empty: a flow
	Writing bool     `json:"writing"`
	Last    uint64   `json:"messages"`
	Stalls  uint64   `json:"stalls"`
	Readers []Reader `json:"readers"`
}

// Reader is a program or a peer that reads a channel or a state.
type Reader struct {
	Name    string `json:"name"`
	Reading bool   `json:"reading"`
	Lag     uint64 `json:"lag"`
	Lost    uint64 `json:"lost"`
}

// State is memory that a flow writes, and that programs and peers read.
type State struct {
	Name     string   `json:"name"`
	Position uint64   `json:"position"`
	Entries  uint64   `json:"entries"`
	Updates  uint64   `json:"updates"`
	Refused  []Part   `json:"refused"` // updates, by reason
	Readers  []Reader `json:"readers"`
	Peers    int      `json:"peers"`
}

// Finding is something that needs attention, or makes flows slower than they could be.
type Finding struct {
	Severity string `json:"severity"` // error, warning or info
	Text     string `json:"text"`
}

// Audience is who sees a document.
type Audience bool

// Audiences: anybody on the network, or who may open the control socket.
const (
	Public Audience = false
	Owner  Audience = true
)

// Make returns the document of a status.
func Make(s *status.Daemon, messages []recent.Message, who Audience, now time.Time) *Document {
	d := &Document{Version: s.Version, Time: now, Up: now.Sub(s.Started).Seconds(), Messages: messages, Findings: []Finding{},
		Region: Region{Bytes: s.Region.Bytes, Pages: s.Region.Pages, Frames: s.Region.Frames}}
	if d.Messages == nil {
		d.Messages = []recent.Message{}
	}
	for _, owner := range slices.Sorted(maps.Keys(s.Region.Owners)) {
		d.Region.Owners = append(d.Region.Owners, Part{owner, uint64(s.Region.Owners[owner])})
	}
	for i := range s.Flows {
		d.Flows = append(d.Flows, makeFlow(&s.Flows[i], who))
	}
	d.share(s)
	d.find(s)
	return d
}

// share adds programs, channels and states.
func (d *Document) share(s *status.Daemon) {
	if s.Programs != nil {
		for i := range s.Programs.Programs {
			p := &s.Programs.Programs[i]
			d.Programs = append(d.Programs, Program{p.Name, p.Attached, p.Attaches, parts(p.Ended)})
		}
		for i := range s.Programs.Channels {
			c := &s.Programs.Channels[i]
			one := Channel{Name: c.Name, Writer: c.Writer, Writing: c.Writing, Last: c.Last, Stalls: c.Stalls, Readers: []Reader{}}
			for _, r := range c.Readers {
				one.Readers = append(one.Readers, Reader{r.Program, r.Reading, r.Lag, r.Lost})
			}
			d.Channels = append(d.Channels, one)
		}
	}
	for i := range s.States {
		st := &s.States[i]
		one := State{Name: st.Name, Position: st.Position, Entries: st.Entries, Updates: st.Updates, Refused: parts(st.Refused), Readers: []Reader{}}
		for _, r := range st.Readers {
			one.Readers = append(one.Readers, Reader{Name: r.Program, Reading: r.Reading})
		}
		if st.Remote != nil {
			one.Peers = st.Remote.Readers
		}
		d.States = append(d.States, one)
	}
}

func makeFlow(f *status.Flow, who Audience) Flow {
	from, to, _ := strings.Cut(f.Kind, "-")
	v := Flow{Name: f.Name, State: string(f.State), Up: f.State.Up(), From: end(sources, from, f.From, who), To: end(sinks, to, f.To, who), Unit: unitOf(from, to), Rate: f.PPS, Bits: f.BPS, Packets: f.Packets, Bytes: f.Bytes,
		Lost: parts(f.Dropped), Copied: sum(f.CopiedBytes), Kernel: sum(f.KernelBytes)}
	if who == Owner {
		v.Why = f.Error
	}
	if f.Level != nil {
		v.Held = &f.Level.Held
	}
	v.latency(f)
	if to == "storage" {
		v.Disk = &Disk{Written: f.DiskBytes, Durable: f.Durable.Packets, Errors: parts(f.DiskErrors)}
		if f.Floor != nil {
			v.Disk.Free = f.Floor.Free
		}
	}
	if f.Sends != nil {
		for i := range f.Sends.Peers {
			p := &f.Sends.Peers[i]
			v.Peers = append(v.Peers, Peer{p.Name, p.State, p.Acknowledged, p.Waiting + p.InFlight, parts(p.Dropped)})
		}
	}
	if g := f.Group; g != nil {
		v.Group = "follows " + cmp.Or(g.Leader, "nobody")
		if g.Leader == g.Member {
			v.Group = "leads"
		}
	}
	return v
}

// The ends of flows, for people.
var (
	sources = map[string]string{"network": "interface", "storage": "disk", "rdma": "RDMA", "null": "generated", "attach": "program", "channel": "channel", "witness": "group"}
	sinks   = map[string]string{"network": "interface", "storage": "disk", "rdma": "RDMA", "nvme": "NVMe hosts", "null": "discarded", "attach": "program", "channel": "channel", "state": "state", "": "votes only"}
)

// end returns the name of one end of a flow. Names of interfaces, programs, channels and states are in /metrics,
// too; paths and addresses are not for everybody.
func end(words map[string]string, kind, name string, who Audience) string {
	word := cmp.Or(words[kind], kind)
	switch kind {
	case "null", "":
		return word
	case "attach", "channel", "state":
		return cmp.Or(name, word) // the name has the word
	}
	if who == Owner && name != "" || kind == "network" && name != "" {
		return word + " " + name
	}
	return word
}

func unitOf(from, to string) string {
	switch {
	case from == "rdma" || from == "attach" || from == "channel" || from == "witness":
		return "messages"
	case from == "storage" && to == "state":
		return "records"
	case from == "storage" && to != "network":
		return "requests"
	}
	return "packets"
}

func (v *Flow) latency(f *status.Flow) {
	if l := f.Latency; l != nil {
		v.Latency = &Latency{l.P50, l.P99, l.P999, l.Max}
	}
	if f.FrameTimes == nil || f.FrameTimes.Done == nil {
		return
	}
	d := f.FrameTimes.Done
	if v.Latency == nil {
		v.Latency = &Latency{d.P50, d.P99, d.P999, d.Max}
	}
	v.Histogram = bins(d)
}

// bins returns the buckets of a distribution, those between them that are empty included.
func bins(d *latency.Distribution) (all []Bin) {
	for _, b := range d.Buckets {
		for n := len(all); n > 0 && n < 64 && all[n-1].Below < b.Below/2; n++ {
			all = append(all, Bin{2 * all[n-1].Below, 0})
		}
		all = append(all, Bin{b.Below, b.Count})
	}
	return all
}

// parts returns the numbers that are not 0, in the order of their names.
func parts(by map[string]uint64) []Part {
	all := []Part{}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if by[name] > 0 {
			all = append(all, Part{name, by[name]})
		}
	}
	return all
}

func sum(by map[string]uint64) (n uint64) {
	for _, one := range by {
		n += one
	}
	return n
}

// harmless are reasons for which a packet is not received, on purpose.
var harmless = []string{"filter_dropped", "beyond_count", "duplicate", "not_matched", "other_link_type"}

// Harmless reports whether packets are not received on purpose for a reason.
func Harmless(reason string) bool { return slices.Contains(harmless, reason) }

// find lists what needs attention.
func (d *Document) find(s *status.Daemon) {
	add := func(severity, format string, args ...any) {
		d.Findings = append(d.Findings, Finding{severity, fmt.Sprintf(format, args...)})
	}
	if r := s.Config.Last; r != nil && !r.Outcome.Good() {
		add("warning", "the last reload failed: unifiedd check says what is wrong")
	}
	if s.Region.Ordinary {
		add("info", "the region is on ordinary pages: every device is slower")
	}
	if s.Clock.Steps > 0 {
		add("warning", "the system's clock was set %d times, last by %v", s.Clock.Steps, s.Clock.Step.Round(time.Millisecond))
	}
	if s.TLS != nil && s.TLS.Expired {
		add("error", "the daemon's certificate has expired at %s", s.TLS.Expires.Format(time.RFC3339))
	}
	if c := s.Cluster; c != nil && !c.Up {
		add("error", "the registry of daemons does not answer since %s: flows go on, and peers that move are not followed", c.Since.Format(time.RFC3339))
	} else if c != nil && c.Name != "" && !c.Registered {
		add("error", "the daemon is not registered: unifiedd cluster status says why")
	} else if c != nil {
		for _, name := range slices.Sorted(maps.Keys(c.Unregistered)) {
			add("info", "others cannot find flow %s: unifiedd status says why", name)
		}
		for _, name := range slices.Sorted(maps.Keys(c.UnregisteredStates)) {
			add("info", "others cannot find state %s: unifiedd status says why", name)
		}
	}
	for _, w := range s.Workers {
		if w.Away.Count > 0 {
			add("warning", "worker %s did not poll for 20 ms or longer %d times, for at most %v", w.Name, w.Away.Count, w.Away.Longest.Round(time.Millisecond))
		}
	}
	for i := range s.Flows {
		f := &s.Flows[i]
		switch f.State {
		case status.Running:
		case status.Waiting:
			add("error", "flow %s waits for its interface, disk or peer", f.Name)
		default:
			add("error", "flow %s is %s", f.Name, f.State)
		}
		for _, lost := range parts(f.Dropped) {
			if !slices.Contains(harmless, lost.Name) {
				add("error", "flow %s has lost %d: %s", f.Name, lost.Count, lost.Name)
			}
		}
		for _, failed := range parts(f.DiskErrors) {
			add("error", "the disk of flow %s failed %d times: %s", f.Name, failed.Count, failed.Name)
		}
		if strings.HasPrefix(f.Kind, "network-") && !f.ZeroCopy && f.State.Up() {
			add("info", "flow %s has no zero copy: the kernel copies each packet", f.Name)
		}
		if len(f.Far) > 0 {
			add("info", "parts of flow %s are on another NUMA node than the region", f.Name)
		}
	}
	d.findShared(add)
}

// findShared lists what needs attention of channels and states.
func (d *Document) findShared(add func(severity, format string, args ...any)) {
	for i := range d.Channels {
		for _, r := range d.Channels[i].Readers {
			if r.Lost > 0 {
				add("error", "reader %s of channel %s has lost %d messages", r.Name, d.Channels[i].Name, r.Lost)
			}
		}
	}
	for i := range d.States {
		for _, refused := range d.States[i].Refused {
			add("error", "state %s has refused %d updates: %s", d.States[i].Name, refused.Count, refused.Name)
		}
	}
}
