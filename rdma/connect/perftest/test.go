package perftest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Defaults that the programs assume.
const (
	Port = 18515      // TCP
	QKey = 0x11111111 // of datagrams
)

// Test is one of the programs.
type Test int

const (
	SendLatency Test = iota
	SendBandwidth
	WriteLatency
	WriteBandwidth
	ReadLatency
	ReadBandwidth
	AtomicLatency
	AtomicBandwidth
)

var programs = []string{"ib_send_lat", "ib_send_bw", "ib_write_lat", "ib_write_bw", "ib_read_lat", "ib_read_bw", "ib_atomic_lat", "ib_atomic_bw"}

// String returns the program's name.
func (t Test) String() string {
	if t >= 0 && int(t) < len(programs) {
		return programs[t]
	}
	return fmt.Sprintf("test %d", int(t))
}

// ParseTest parses a program's name, with or without "ib_".
func ParseTest(s string) (Test, error) {
	if i := slices.Index(programs, "ib_"+strings.TrimPrefix(s, "ib_")); i >= 0 {
		return Test(i), nil
	}
	return 0, fmt.Errorf("perftest program %q: it must be one of %s", s, strings.Join(programs, ", "))
}

// Latency reports whether the test measures latency, and not bandwidth.
func (t Test) Latency() bool { return t%2 == 0 }

// Traffic holds the values that both sides must be started with.
type Traffic struct {
	Size       int // bytes of a message
	Iterations int
	SendDepth  int
	RecvDepth  int // for SEND
	// Moderation is how many messages of a bandwidth test one completion stands for, if they have
	// at most ModerationSize bytes. For longer messages it is 1.
	Moderation int
}

// ModerationSize is the longest message for which the programs request fewer completions than
// messages.
const ModerationSize = 8192

// Defaults returns the values that the programs use without options.
func (t Test) Defaults() Traffic {
	d := Traffic{Size: 65536, Iterations: 1000, SendDepth: 128, RecvDepth: 512, Moderation: 1}
	switch t {
	case WriteBandwidth:
		d.Iterations = 5000
	case AtomicLatency, AtomicBandwidth:
		d.Size = 8
	case SendLatency, WriteLatency, ReadLatency:
		d.Size = 2
	}
	if t.Latency() {
		d.SendDepth = 1
	}
	if d.Size <= ModerationSize {
		d.Moderation = 100
	}
	return d
}

// Settings returns the settings of the programs for a queue pair of the test: seven retries, no
// limit for receiver-not-ready, and as many outstanding READs or atomics as the device supports.
// The caller chooses the GID.
func (t Test) Settings() connect.Settings {
	s := connect.Defaults()
	s.Retries, s.RNRRetries, s.HopLimit, s.QKey, s.MaxReads = 7, 7, 255, QKey, 1
	switch t {
	case WriteLatency, WriteBandwidth:
		s.Access = rdma.RemoteWrite
	case ReadLatency, ReadBandwidth:
		s.Access, s.MaxReads = rdma.RemoteRead, 255
	case AtomicLatency, AtomicBandwidth:
		s.Access, s.MaxReads = rdma.RemoteAtomic, 255
	}
	return s
}
