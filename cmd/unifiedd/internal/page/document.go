package page

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/recent"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/latency"
)

// Document is what the page shows at one moment. Numbers are those of /metrics.
type Document struct {
	Host     string           `json:"host"`
	Version  string           `json:"version"`
	Time     time.Time        `json:"time"`
	Up       float64          `json:"up_seconds"`
	Region   Region           `json:"region"`
	Flows    []Flow           `json:"flows"`
	Programs []Program        `json:"programs,omitempty"`
	Channels []Channel        `json:"channels,omitempty"`
	States   []State          `json:"states,omitempty"`
	Findings []status.Problem `json:"findings"` // the worst first
	Messages []recent.Message `json:"messages"`
	Step     float64          `json:"step_seconds"` // of each point in Rates and Losses
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
	Name      string       `json:"name"`
	State     string       `json:"state"`
	Cause     status.Cause `json:"cause,omitempty"`
	Up        bool         `json:"up"`
	From      string       `json:"from"`
	To        string       `json:"to"`
	Unit      string       `json:"unit"`
	Rate      float64      `json:"rate"`
	Bits      float64      `json:"bits"`
	Packets   uint64       `json:"packets"`
	Bytes     uint64       `json:"bytes"`
	Lost      []Part       `json:"lost"`             // by reason, without those that are 0
	Losing    float64      `json:"losing"`           // packets or messages a second, of the flow and of its peers, in the last 10 to 20 s
	Recent    uint64       `json:"recently_lost"`    // in the time of Losses, and since
	Rates     []uint64     `json:"rates,omitempty"`  // packets or messages a second before, the oldest first
	Losses    []uint64     `json:"losses,omitempty"` // lost in each step
	Copied    uint64       `json:"copied_bytes"`
	Kernel    uint64       `json:"kernel_copied_bytes"`
	Held      *int64       `json:"held,omitempty"` // frames between its ends; nil: not counted
	Latency   *Latency     `json:"latency,omitempty"`
	Disk      *Disk        `json:"disk,omitempty"`
	Peers     []Peer       `json:"peers,omitempty"`
	Group     string       `json:"group,omitempty"`
	Histogram []Bin        `json:"histogram,omitempty"`
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
	Free    uint64 `json:"free_bytes"`
	Reserve uint64 `json:"reserve_bytes,omitempty"` // of Free, which nothing is written to
	Size    uint64 `json:"size_bytes,omitempty"`    // 0: Free and Size are not known
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

// Audience is who sees a document.
type Audience bool

// Audiences: anybody on the network, or who may open the control socket.
const (
	Public Audience = false
	Owner  Audience = true
)

// Make returns the document of a status. before may be nil.
func Make(s *status.Daemon, before *History, messages []recent.Message, who Audience, now time.Time) *Document {
	host, _ := os.Hostname() // empty: the page says only what it is
	d := &Document{Host: host, Version: s.Version, Time: now, Up: now.Sub(s.Started).Seconds(), Messages: messages, Step: step.Seconds(),
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
	before.fill(d, s)
	d.share(s)
	d.find(s, who)
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
	v := Flow{Name: f.Name, State: string(f.State), Cause: f.Cause, Up: f.State.Up(), From: end(sources, from, f.From, who), To: end(sinks, to, f.To, who), Unit: unitOf(from, to), Rate: f.PPS, Bits: f.BPS, Packets: f.Packets, Bytes: f.Bytes,
		Lost: parts(f.Dropped), Copied: sum(f.CopiedBytes), Kernel: sum(f.KernelBytes)}
	if f.Level != nil {
		v.Held = &f.Level.Held
	}
	v.latency(f)
	if to == "storage" {
		v.Disk = &Disk{Written: f.DiskBytes, Durable: f.Durable.Packets, Errors: parts(f.DiskErrors)}
		if f.Floor != nil {
			v.Disk.Free, v.Disk.Reserve, v.Disk.Size = f.Floor.Free, f.Floor.Bytes, f.Floor.Size
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

// find lists what needs attention, the worst first.
func (d *Document) find(s *status.Daemon, who Audience) {
	d.Findings = []status.Problem{}
	add := func(all []status.Problem) {
		for _, p := range all {
			switch {
			case who == Owner:
				p.Text = p.Full()
			case p.Detail != "" && p.Remedy == "":
				p.Remedy = "unifiedd status says why"
			}
			d.Findings = append(d.Findings, p)
		}
	}
	add(s.Problems())
	for i := range s.Flows {
		f := &s.Flows[i]
		add(f.Problems(d.Time))
		if f.State == status.Running && silent(&d.Flows[i]) && strings.HasPrefix(f.Kind, "network-") {
			add([]status.Problem{{Severity: status.Warning, Flow: f.Name, Text: "has received nothing for three minutes or longer", Remedy: "see whether packets arrive (ip -s link), and the filter"}})
		}
	}
	slices.SortStableFunc(d.Findings, status.Problem.Compare)
}

// silent reports whether packets came once, and have not come for some time.
func silent(f *Flow) bool {
	n := len(f.Rates)
	return f.Packets > 0 && n >= quietAfter && slices.Max(f.Rates[n-quietAfter:]) == 0 && f.Rate == 0
}
