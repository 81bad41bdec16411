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

// counts are the counters of a device's port, under the names of the kernel or of RoCE in software.
// They include the traffic of all processes. Retransmissions, packets out of sequence and messages
// without a receive are among them. Their names differ between drivers.
type counts map[string]uint64

// readCounts reads the counters of the device's first port. A device may have none.
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
	time.Sleep(lifespan) // the kernel may return values that it cached before a short test
	all, err := verbs.ReadCounters(s.options.device, 1)
	for _, one := range all {
		c[one.Name] = one.Value
	}
	return c, err
}

// since returns the differences to before. It omits counters that fell, because another program reset them.
func (c counts) since(before counts) counts {
	rose := make(counts)
	for name, n := range c {
		if n > before[name] {
			rose[name] = n - before[name]
		}
	}
	return rose
}

// counted has the counters of a device during a test.
type counted struct {
	device string
	counts counts
}

// counted returns what the device counted since the session was opened. Some drivers read the
// device only every 10 ms, so the last packets may be missing.
func (s *session) counted() (counted, error) {
	now, err := s.readCounts()
	return counted{s.options.device, now.since(s.before)}, err
}

// print prints the counters, if there are any.
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
