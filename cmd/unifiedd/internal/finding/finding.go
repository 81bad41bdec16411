package finding

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
)

// Severity says how much a finding matters. The smaller one matters more.
type Severity string

// Severities: data are or may be lost; look at it today; it could be faster, or is over.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Info    Severity = "info"
)

var ranks = map[Severity]int{Error: 1, Warning: 2, Info: 3}

// Compare compares by severity, the worst first.
func Compare(a, b Severity) int { return cmp.Compare(ranks[a], ranks[b]) }

// Finding is something that is wrong, or slower than it could be.
type Finding struct {
	Severity Severity `json:"severity"`
	Flow     string   `json:"flow,omitempty"` // empty: of the daemon
	Text     string   `json:"text"`           // of a flow: without its name, which stands before it
	Remedy   string   `json:"remedy,omitempty"`
}

func (f Finding) String() string {
	text := f.Text
	if f.Flow != "" {
		text = "flow " + f.Flow + " " + text
	}
	if f.Remedy != "" {
		text += ": " + f.Remedy
	}
	return text
}

// Of returns what is wrong with a flow, the worst first. recent says whether it has lost something in the last minutes:
// what it lost before does not need attention any more.
func Of(f *status.Flow, recent bool) (all []Finding) {
	add := func(s Severity, text, remedy string) { all = append(all, Finding{s, f.Name, text, remedy}) }
	if text, remedy := stopped(f); text != "" {
		severity := Error
		if f.State == status.Stopped || f.State == status.Done {
			severity = Info
		}
		add(severity, text, remedy)
	}
	if r := f.Floor; r != nil && r.Free < r.Bytes && f.Cause != status.DiskFull {
		add(Error, "has no room on its disk above to.keep_free", RemedyFull)
	}
	severity := Error
	if !recent {
		severity = Info
	}
	for _, l := range Losses(f) {
		add(severity, fmt.Sprintf("has lost %s: %s", Grouped(l.Count), l.Why), l.Remedy)
	}
	if f.Sends != nil {
		for i := range f.Sends.Peers {
			p := &f.Sends.Peers[i]
			for _, reason := range sorted(p.Dropped) {
				add(severity, fmt.Sprintf("has lost %s for peer %s: %s", Grouped(p.Dropped[reason]), cmp.Or(p.Name, "without a name"), reason), "the peer is slower than the flow, or away: see its policy")
			}
		}
	}
	for _, reason := range sorted(f.DiskErrors) {
		if reason != "ENOSPC" || f.Cause != status.DiskFull {
			add(severity, fmt.Sprintf("got %s from its disk %s", reason, times(f.DiskErrors[reason])), "see the kernel's log, and smartctl or nvme smart-log")
		}
	}
	if strings.HasPrefix(f.Kind, "network-") && !f.ZeroCopy && f.Engine != "packet" && f.State.Up() {
		add(Info, "has no zero copy: the kernel copies each packet", "unifiedd status says why the driver did not grant it")
	}
	if len(f.Far) > 0 {
		add(Info, "has parts on another NUMA node than the region", "set region.node and workers[].cpu to the node of the card")
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return Compare(a.Severity, b.Severity) })
	return all
}

// RemedyFull is what to do about a disk without room.
const RemedyFull = "make room on the disk, keep fewer segments, or lower to.keep_free"

// stopped returns why a flow does not do its work, and what to do. The text is empty for one that runs.
func stopped(f *status.Flow) (text, remedy string) {
	verb := map[status.State]string{status.Waiting: "waits", status.Failed: "has failed", status.Stopped: "is stopped", status.Done: "is done"}[f.State] + since(f.Since)
	switch {
	case f.State == status.Running:
		return "", ""
	case f.State == status.Stopped:
		return verb, "unifiedd start " + f.Name
	case f.State == status.Done:
		return verb, ""
	}
	name := "its interface"
	if strings.HasPrefix(f.Kind, "network-") && f.From != "" {
		name = "interface " + f.From
	}
	switch f.Cause {
	case status.DiskFull:
		return verb + ": its disk is full" + room(f.Floor), RemedyFull
	case status.DiskSilent:
		return verb + ": its disk does not answer", "see the kernel's log, and smartctl or nvme smart-log"
	case status.InterfaceDown:
		return verb + ": " + name + " is down", "ip link set " + cmp.Or(interfaceOf(f), "IFACE") + " up"
	case status.InterfaceGone:
		remedy = "bring it back, and unifiedd start " + f.Name
		if !f.NextStart.IsZero() {
			remedy = "bring it back: the flow then starts again by itself"
		}
		return verb + ": " + name + " is not there", remedy
	case status.PeerAway:
		return verb + ": " + away(f), "see whether it runs, the network between, and the certificates of both"
	}
	if f.State == status.Waiting {
		verb += ": for its interface, disk or peer"
	}
	return verb, "unifiedd status says why"
}

// since returns since when that is; without the day if that is clear.
func since(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case time.Since(t) < 20*time.Hour:
		return " since " + t.UTC().Format("15:04:05 MST")
	}
	return " since " + t.UTC().Format("2006-01-02 15:04 MST")
}

// room returns how much of a disk is free, if that is known.
func room(r *status.FreeSpace) string {
	if r == nil || r.Size == 0 {
		return ""
	}
	return ", " + Bytes(r.Free) + " of " + Bytes(r.Size) + " are free"
}

func interfaceOf(f *status.Flow) string {
	if strings.HasPrefix(f.Kind, "network-") {
		return f.From
	}
	return ""
}

// away names the peers that are not connected.
func away(f *status.Flow) string {
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

// sorted returns the reasons whose numbers are not 0.
func sorted(by map[string]uint64) (all []string) {
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		if by[reason] > 0 {
			all = append(all, reason)
		}
	}
	return all
}

// Grouped formats a number with commas between groups of three digits.
func Grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Bytes formats a number of bytes with three digits.
func Bytes(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for ; v >= 999.5 && i < len(units)-1; i++ {
		v /= 1024
	}
	return fmt.Sprintf("%.3g %s", v, units[i])
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return Grouped(n) + " times"
}
