package demo

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/status"
)

// result is one capture: the packets sent, the daemon's counters, the bytes on disk, and the
// findings of the readers.
type result struct {
	layout      string
	sent        traffic
	status      status.Flow
	files       []string
	disk        uint64 // bytes of the files
	readings    []reading
	fileBytes   uint64  // of the packets in the files
	first, last float64 // times of packets in the files, in seconds
}

// lost returns how many packets the capture lost, for any reason.
func (r *result) lost() (n uint64) {
	for _, k := range r.status.Dropped {
		n += k
	}
	return n
}

// taken returns how many packets the capture has accounted for.
func (r *result) taken() uint64 { return r.status.Packets + r.lost() }

// problems returns everything that does not add up.
func (r *result) problems() (errs []error) {
	same := func(what string, a, b uint64) {
		if a != b {
			errs = append(errs, fmt.Errorf("%s layout: %s: %d and %d", r.layout, what, a, b))
		}
	}
	s := &r.status
	same("packets sent, and captured or lost", r.sent.packets, r.taken())
	same("packets received, and written", s.Packets, s.Written.Packets)
	same("packets written, and durable", s.Written.Packets, s.Durable.Packets)
	same("bytes written, and in the files", s.Written.Bytes, r.fileBytes)
	if r.lost() == 0 {
		same("bytes sent, and written", r.sent.bytes, s.Written.Bytes)
	}
	same("pings sent, and answered", r.sent.pings, r.sent.answered)
	if s.Missing != 0 || s.Waiting != 0 {
		errs = append(errs, fmt.Errorf("%s layout: of %d packets offered, %d wait and %d are unaccounted for", r.layout, s.Offered, s.Waiting, s.Missing))
	}
	if len(r.readings) != len(readers) {
		errs = append(errs, fmt.Errorf("%s layout: %d readers of %d read the files", r.layout, len(r.readings), len(readers)))
	}
	for _, one := range r.readings {
		same("packets written, and found by "+one.reader, s.Written.Packets, one.packets)
	}
	return errs
}
