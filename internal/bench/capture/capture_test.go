package capture

import (
	"fmt"
	"slices"
	"testing"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// rate is the packets per second in contests. All contestants keep up with it.
const rate = 200000

// finish saves a report, and notes how it was measured.
func (b *bed) finish(r *bench.Report) {
	b.Helper()
	r.Finish(
		fmt.Sprintf("Each contestant in turn having %v of packets over veth; sender and receiver on a CPU each.", b.span),
		"What a packet costs is the time no processor was idle less that of the same packets into an XDP program that drops them, until all is on stable storage.",
		"Lost is what is not in the files.")
}

// TestAgainstCaptures compares both of our engines with the programs that others use. All run in the same rounds.
// Of the engines each has its own report.
func TestAgainstCaptures(t *testing.T) {
	b := newBed(bench.Start(t, "capture-passive", "Packets to disk from a packet socket", "unifiedd with engine: packet", "others"))
	taken := bench.Start(t, "capture", "Packets to disk from AF_XDP sockets", withXDP, "others")
	all := b.engines()
	for _, size := range []int{64, 512, 1024, 1500} {
		c := b.contest(work{size, rate}, passiveBars, all)
		if c == nil {
			continue
		}
		c.addTo(b.Report)
		if i := slices.Index(c.names, withXDP); i > 0 && len(c.names) > 2 {
			c.seenBy(i, takenBars).addTo(taken)
		}
	}
	b.finish(b.Report)
	if len(taken.Comparisons) > 0 {
		b.finish(taken)
	}
}

// TestAgainstLayouts compares layouts, waits, and sizes of rings and writes with the defaults: docs/background/benchmarks.md has the results.
func TestAgainstLayouts(t *testing.T) {
	b := newBed(bench.Start(t, "capture-layouts", "Packets to disk, other settings", "unifiedd", "unifiedd with the setting"))
	all := []contestant{ours("unifiedd", b.daemon, "", "", "")}
	for _, s := range []struct{ name, from, to, rest string }{
		{name: "slot", to: "layout: slot"},
		{name: "sleep 50us", rest: "workers: [{name: main, sleep: 50us}]"},
		{name: "sleep 200us", rest: "workers: [{name: main, sleep: 200us}]"},
		{name: "sleep 1ms", rest: "workers: [{name: main, sleep: 1ms}]"},
		{name: "sleep 4ms", rest: "workers: [{name: main, sleep: 4ms}]"},
		{name: "sleep 10ms", rest: "workers: [{name: main, sleep: 10ms}]"},
		{name: "no sleep", rest: "workers: [{name: main, sleep: 0s}]"},
		{name: "spin", rest: "workers: [{name: main, wait: spin}]"},
		{name: "ring 1024", from: "ring: 1024"},
		{name: "ring 16384", from: "ring: 16384"},
		{name: "extent 256KiB", rest: "region: {extent: 256KiB, extents: 64}"},
		{name: "extent 4MiB", rest: "region: {extent: 4MiB, extents: 16}"},
		{name: "zero", to: "prepare: zero"},
	} {
		all = append(all, ours(s.name, b.daemon, s.from, s.to, s.rest))
	}
	for _, size := range []int{64, 1024, 1500} {
		if c := b.contest(work{size, rate}, takenBars, all); c != nil {
			c.addTo(b.Report)
		}
	}
	b.finish(b.Report)
}

// TestAgainstNoIndex compares a capture with indexes and one without. Each segment has a fifth of the
// packets.
func TestAgainstNoIndex(t *testing.T) {
	b := newBed(bench.Start(t, "capture-index", "Indexes beside a capture", "unifiedd with to.index", "unifiedd"))
	w := work{1024, rate}
	segment := fmt.Sprintf("segment: {size: %dKiB}", max(1024, int(b.span.Seconds()*float64(w.rate*w.size)/5)>>10))
	with := ours("unifiedd", b.daemon, "", segment+", index: true", "")
	with.settle = b.span/2 + settles // the daemon makes an index after its segment is full
	if c := b.contest(w, takenBars, []contestant{with, ours("no index", b.daemon, "", segment, "")}); c != nil {
		c.addTo(b.Report)
	}
	b.finish(b.Report)
}
