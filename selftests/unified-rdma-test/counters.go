package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// counts are counters of a device's port by the names the kernel has for them, or RoCE in software: of all that goes
// through the port, whoever sends it. What was sent again, came out of sequence or found no
// receive is among them, under names that differ from driver to driver.
type counts map[string]uint64

// readCounts reads those of the device's first port. A device may have none.
func (s *session) readCounts() (counts, error) {
	c := make(counts)
	if d, is := s.device.(*roce.Device); is {
		for _, one := range d.Counters() {
			c[one.Name] = one.Value
		}
		return c, nil
	}
	lifespan, err := verbs.CountersLifespan(s.options.device, 1)
	if err != nil {
		return c, err
	}
	time.Sleep(lifespan) // the kernel has cached them since before a short test
	all, err := verbs.ReadCounters(s.options.device, 1)
	for _, one := range all {
		c[one.Name] = one.Value
	}
	return c, err
}

// since is what was counted after before. Counters that fell were set again by others.
func (c counts) since(before counts) counts {
	rose := make(counts)
	for name, n := range c {
		if n > before[name] {
			rose[name] = n - before[name]
		}
	}
	return rose
}

// counted has a device's counters of a test.
type counted struct {
	device string
	counts counts
}

// counted is what was counted since the session was opened. Some drivers have the kernel ask
// the device every 10 ms only, so the last packets may be missing.
func (s *session) counted() (counted, error) {
	now, err := s.readCounts()
	return counted{s.options.device, now.since(s.before)}, err
}

// print says it, if there is anything.
func (c counted) print(out io.Writer) {
	if len(c.counts) == 0 {
		return
	}
	var text []string
	for _, name := range slices.Sorted(maps.Keys(c.counts)) {
		text = append(text, fmt.Sprintf("%s %d", name, c.counts[name]))
	}
	fmt.Fprintf(out, "meanwhile %s counted: %s\n", c.device, strings.Join(text, ", "))
}
