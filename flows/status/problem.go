package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Severity says how much a problem matters.
type Severity string

// Severities: data are or may be lost; look at it today; it could be faster, or is over.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

var ranks = map[Severity]int{Error: 1, Warning: 2, Info: 3}

// Problem is something that is wrong, or slower than it could be, and what to do. Anybody may see it but for Detail: it
// names flows, interfaces and peers, as /metrics does.
type Problem struct {
	Severity Severity `json:"severity"`
	Flow     string   `json:"flow,omitempty"` // empty: of the daemon
	Text     string   `json:"text"`           // of a flow: without its name, which stands before it
	Remedy   string   `json:"remedy,omitempty"`
	Detail   string   `json:"-"` // the error, which may have paths and addresses
	Past     bool     `json:"-"` // Text counts since the flow began
}

// Compare compares problems, the worst first.
func (p Problem) Compare(other Problem) int {
	return cmp.Compare(ranks[p.Severity], ranks[other.Severity])
}

// String returns the problem and its remedy in one line, without Detail.
func (p Problem) String() string {
	text := p.Text
	if p.Flow != "" {
		text = "flow " + p.Flow + " " + text
	}
	if p.Remedy != "" {
		text += ": " + p.Remedy
	}
	return text
}

// Full returns the text with Detail, for who may open the control socket.
func (p Problem) Full() string {
	if p.Detail == "" {
		return p.Text
	}
	return p.Text + ": " + p.Detail
}

// problems are those of a flow or of a daemon.
type problems []Problem

func (all *problems) add(severity Severity, remedy, text string, args ...any) *Problem {
	*all = append(*all, Problem{Severity: severity, Text: fmt.Sprintf(text, args...), Remedy: remedy})
	return &(*all)[len(*all)-1]
}

// Remedies of several problems.
const (
	RemedyFull = "make room on the disk, keep fewer segments, or lower to.keep_free" // of a disk without room
	remedyDisk = "see the kernel's log, and smartctl or nvme smart-log"
)

// Recently is how long ago what a flow lost still needs attention.
const Recently = 5 * time.Minute

// Problems returns what is wrong with a flow, the worst first.
func (f *Flow) Problems(now time.Time) []Problem {
	var all problems
	f.stopped(&all, now)
	if r := f.Floor; r != nil && r.Free < r.Bytes && f.Cause != DiskFull {
		all.add(Error, RemedyFull, "has no room on its disk above to.keep_free")
	}
	f.losses(&all, now)
	f.peers(&all)
	f.packets(&all)
	if len(f.Far) > 0 {
		all.add(Info, "set region.node and workers[].cpu to the node of the card", "has parts on another NUMA node than the region")
	}
	for i := range all {
		all[i].Flow = f.Name
	}
	slices.SortStableFunc(all, Problem.Compare)
	return all
}

// stopped adds why a flow does not do its work.
func (f *Flow) stopped(all *problems, now time.Time) {
	verb := map[State]string{Waiting: "waits", Failed: "has failed", Stopped: "is stopped", Done: "is done"}[f.State] + since(f.Since, now)
	again := "unifiedd start " + f.Name
	switch f.State {
	case Running:
		return
	case Stopped:
		all.add(Info, again, "%s", verb)
		return
	case Done:
		all.add(Info, "", "%s", verb)
		return
	}
	if !f.NextStart.IsZero() {
		again = "the flow then starts again by itself"
	}
	p := all.add(Error, "", "%s", verb)
	p.Detail = f.Error
	name, card := "its interface", "IFACE"
	if strings.HasPrefix(f.Kind, "network-") && f.From != "" {
		name, card = "interface "+f.From, f.From
	}
	switch f.Cause {
	case DiskFull:
		p.Text += ": its disk is full"
		if r := f.Floor; r != nil && r.Size > 0 { // a segment is made at its full size
			p.Text += ": " + Bytes(r.Free) + " of " + Bytes(r.Size) + " are free, and it needs more"
		}
		p.Remedy = RemedyFull
	case DiskSilent:
		p.Text += ": its disk does not answer"
		p.Remedy = remedyDisk
	case InterfaceDown:
		p.Text += ": " + name + " is down"
		p.Remedy = "ip link set " + card + " up"
	case InterfaceGone:
		p.Text += ": " + name + " is not there"
		p.Remedy = "bring it back, and " + again
	case PeerAway:
		p.Text += ": " + f.away()
		p.Remedy = "see whether it runs, the network between, and the certificates of both"
	default:
		if f.State == Failed {
			p.Remedy = "mend what unifiedd status says, and " + again
		}
	}
}

// since returns since when that is; without the day if that is clear.
func since(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case now.Sub(t) < 20*time.Hour:
		return " since " + t.UTC().Format("15:04:05 MST")
	}
	return " since " + t.UTC().Format("2006-01-02 15:04 MST")
}

// away names the peers that are not connected.
func (f *Flow) away() string {
	var names []string
	if f.Sends != nil {
		for i := range f.Sends.Peers {
			if p := &f.Sends.Peers[i]; p.State != "connected" {
				names = append(names, p.Name)
			}
		}
	}
	switch len(names) {
	case 0:
		return "a peer is not connected"
	case 1:
		return "peer " + names[0] + " is not connected"
	}
	return "peers " + strings.Join(names, ", ") + " are not connected"
}

// losses adds what the flow and its peers lost.
func (f *Flow) losses(all *problems, now time.Time) {
	severity := Error
	if now.Sub(f.LostAt) > Recently {
		severity = Info
	}
	past := func(remedy, text string, args ...any) { all.add(severity, remedy, text, args...).Past = true }
	lost := f.Lost()
	for _, reason := range slices.SortedFunc(maps.Keys(lost), func(a, b string) int { return cmp.Or(cmp.Compare(lost[b], lost[a]), cmp.Compare(a, b)) }) {
		why := f.Why(reason)
		past(why.Remedy, "has lost %s (%s): %s", Grouped(lost[reason]), reason, why.Cause)
	}
	if f.Sends != nil {
		for i := range f.Sends.Peers {
			p := &f.Sends.Peers[i]
			for _, reason := range sorted(p.Dropped) {
				past("the peer is slower than the flow, or away: see its policy", "has lost %s for peer %s: %s", Grouped(p.Dropped[reason]), cmp.Or(p.Name, "without a name"), reason)
			}
		}
	}
	for _, reason := range sorted(f.DiskErrors) {
		if reason != "ENOSPC" || f.Cause != DiskFull {
			past(remedyDisk, "got %s from its disk %s", reason, times(f.DiskErrors[reason]))
		}
	}
}

// sorted returns the reasons whose numbers are not 0.
func sorted(by map[string]uint64) []string {
	by = maps.Clone(by)
	maps.DeleteFunc(by, func(_ string, n uint64) bool { return n == 0 })
	return slices.Sorted(maps.Keys(by))
}

// peers adds peers that are not connected, of a flow that does not wait for them.
func (f *Flow) peers(all *problems) {
	if f.Sends == nil || f.Cause == PeerAway {
		return
	}
	for i := range f.Sends.Peers {
		if p := &f.Sends.Peers[i]; p.Error != "" && p.State != "connected" && p.State != "standby" {
			all.add(Warning, "", "has peer %s, which is %s", cmp.Or(p.Name, "without a name"), p.State).Detail = p.Address + ": " + p.Error
		}
	}
}

// packets adds what keeps packets of an interface from the flow, or makes them slower.
func (f *Flow) packets(all *problems) {
	for _, j := range f.Joined {
		if j.Error != "" {
			all.add(Warning, "", "is not a member of one of its multicast groups").Detail = j.Group + ": " + j.Error
		}
	}
	if len(f.Left) > 0 && len(f.Steered) == 0 {
		all.add(Warning, "bind all queues, or steer the packets to those of the flow (from.steer)", "does not bind queues %v: their packets stay with the kernel", f.Left)
	}
	if f.NotSteered != "" {
		all.add(Warning, "", "does not steer its packets").Detail = f.NotSteered
	}
	if strings.HasPrefix(f.Kind, "network-") && !f.ZeroCopy && f.Engine != "packet" && f.State.Up() {
		all.add(Info, "unifiedd status says why the driver did not grant it", "has no zero copy: the kernel copies each packet")
	}
}

// Problems returns what is wrong with the daemon itself, and with what its programs share. Flows have their own.
func (d *Daemon) Problems() []Problem {
	var all problems
	if r := d.Config.Last; r != nil && !r.Outcome.Good() {
		p := all.add(Warning, "unifiedd check says what is wrong with the file", "the last reload was %s", strings.ReplaceAll(string(r.Outcome), "_", " "))
		p.Detail, _, _ = strings.Cut(r.Error, "\n")
	}
	if d.Region.Ordinary && slices.ContainsFunc(d.Flows, func(f Flow) bool { return f.Engine != "packet" }) {
		all.add(Warning, "unifiedd doctor prints the command that reserves huge pages", "the region is on ordinary pages: every device is slower")
	}
	if d.Clock.Steps > 0 {
		all.add(Warning, "have chrony adjust its rate instead", "the system's clock was set %s, last by %v", times(d.Clock.Steps), d.Clock.Step.Round(time.Millisecond))
	}
	if d.TLS != nil && d.TLS.Expired {
		all.add(Error, "replace the files of tls, and unifiedd reload", "the daemon's certificate has expired at %s", d.TLS.Expires.Format(time.RFC3339))
	}
	if d.Trace != nil && d.Trace.Error != "" {
		all.add(Info, "", "not all flows are recorded for unifiedd trace").Detail = d.Trace.Error
	}
	if d.Cluster != nil {
		d.Cluster.problems(&all)
	}
	for _, w := range d.Workers {
		if w.Away.Count > 0 {
			all.add(Info, "give it a CPU of its own (workers[].cpu), and keep others off it", "worker %s did not poll for 20 ms or longer %s, for at most %v", w.Name, times(w.Away.Count), w.Away.Longest.Round(time.Millisecond))
		}
	}
	d.shared(&all)
	slices.SortStableFunc(all, Problem.Compare)
	return all
}

func (c *Cluster) problems(all *problems) {
	switch {
	case !c.Up:
		all.add(Error, "unifiedd doctor asks each endpoint", "the registry of daemons does not answer since %s: flows go on, and peers that move are not followed", c.Since.Format(time.RFC3339)).Detail = c.Error
	case c.Name != "" && !c.Registered:
		all.add(Error, "unifiedd cluster status says why", "the daemon is not registered").Detail = c.Error
	default:
		for _, name := range slices.Sorted(maps.Keys(c.Unregistered)) {
			all.add(Info, "", "others cannot find flow %s", name).Detail = c.Unregistered[name]
		}
		for _, name := range slices.Sorted(maps.Keys(c.UnregisteredStates)) {
			all.add(Info, "", "others cannot find state %s", name).Detail = c.UnregisteredStates[name]
		}
	}
}

// shared adds what is wrong with channels and states.
func (d *Daemon) shared(all *problems) {
	if d.Programs != nil {
		for i := range d.Programs.Channels {
			for _, r := range d.Programs.Channels[i].Readers {
				if r.Lost > 0 {
					all.add(Warning, "make it faster, raise slots, or give it the policy wait", "reader %s of channel %s has lost %s messages", r.Program, d.Programs.Channels[i].Name, Grouped(r.Lost))
				}
			}
		}
	}
	for i := range d.States {
		for _, reason := range sorted(d.States[i].Refused) {
			all.add(Warning, seeReasons, "state %s has refused %s updates: %s", d.States[i].Name, Grouped(d.States[i].Refused[reason]), reason)
		}
	}
}
