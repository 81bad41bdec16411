package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// The tests.
const (
	storageTest   = "storage"
	verifyTest    = "verify"
	latencyTest   = "latency"
	bandwidthTest = "bandwidth"
)

var tests = []string{storageTest, verifyTest, latencyTest, bandwidthTest}

// job describes a test. The client sends it to the server.
type job struct {
	Test      string
	Transport rdma.Transport
	Op        string
	Size      uint64 // bytes of a message
	Count     int    // messages
	Depth     int    // requests in flight
	Inline    int    // longest message that is sent inline, in bytes
	Seed      uint64
	Manager   bool // rdma_cm connects the queue pairs
}

// ops maps the operations to the names in options.
var ops = []struct {
	name string
	op   rdma.Op
}{{"send", rdma.Send}, {"send-immediate", rdma.SendImmediate}, {"write", rdma.Write}, {"write-immediate", rdma.WriteImmediate},
	{"read", rdma.Read}, {"fetch-add", rdma.FetchAdd}, {"compare-swap", rdma.CompareSwap}}

func opNames() (names []string) {
	for _, o := range ops {
		names = append(names, o.name)
	}
	return names
}

// op returns the job's operation.
func (j *job) op() (rdma.Op, bool) {
	for _, o := range ops {
		if o.name == j.Op {
			return o.op, true
		}
	}
	return 0, false
}

// Limits of a job. A server refuses jobs beyond them.
const (
	maxSize  = 1 << 30
	maxCount = 1 << 28
	maxDepth = 4096
)

func isAtomic(op rdma.Op) bool { return op == rdma.FetchAdd || op == rdma.CompareSwap }

// twoSided reports whether an operation consumes a receive of the peer.
func twoSided(op rdma.Op) bool {
	return op == rdma.Send || op == rdma.SendImmediate || op == rdma.WriteImmediate
}

// front is the number of bytes before a received message.
func (j *job) front() uint64 {
	if j.Transport == rdma.UD {
		return rdma.GRHBytes
	}
	return 0
}

// unnoticed reports whether the server takes no part in the test and sees nothing of the client's work.
func (j *job) unnoticed() bool {
	op, _ := j.op()
	switch j.Test {
	case bandwidthTest:
		return !twoSided(op)
	case latencyTest:
		return !twoSided(op) && op != rdma.Write
	}
	return isAtomic(op)
}

// fill sets the defaults. sized says that the user gave a size, which may be zero.
func (j *job) fill(sized bool) {
	op, _ := j.op()
	if isAtomic(op) {
		j.Size = 8
	}
	defaults := map[string]struct {
		size             uint64
		count, depth, in int
	}{storageTest: {65536, 100, 32, 0}, verifyTest: {4096, 100, 128, 0}, latencyTest: {2, 1000, 1, 220}, bandwidthTest: {65536, 1000, 128, 0}}[j.Test]
	if !sized && !isAtomic(op) {
		j.Size = defaults.size
	}
	if j.Count == 0 {
		j.Count = defaults.count
	}
	if j.Depth == 0 || j.Test == latencyTest {
		j.Depth = defaults.depth
	}
	if j.Test == storageTest && j.Size > 0 {
		j.Depth = int(min(uint64(j.Depth), max(areaMost/j.Size, 1)))
	}
	if j.Inline < 0 {
		j.Inline = defaults.in
	}
	if op == rdma.Read || isAtomic(op) {
		j.Inline = 0
	}
}

// check reports values that are not possible.
func (j *job) check() error {
	op, known := j.op()
	switch {
	case !slices.Contains(tests, j.Test):
		return fmt.Errorf("-test %s: it must be %s", j.Test, strings.Join(tests, ", "))
	case !known:
		return fmt.Errorf("-op %s: it must be %s", j.Op, strings.Join(opNames(), ", "))
	case !j.Transport.Allows(op):
		return fmt.Errorf("-op %s: %v does not have it", j.Op, j.Transport)
	case j.Manager && j.Transport != rdma.RC:
		return fmt.Errorf("-R: rdma_cm connects RC queue pairs, not %v", j.Transport)
	case j.Test == storageTest && (j.Transport != rdma.RC || op != rdma.Send):
		return errors.New("-test storage is done with SEND over RC; -test verify has the others")
	case j.Test == storageTest && (j.Size < 4096 || j.Size&(j.Size-1) != 0 || j.Size > 16<<20):
		return fmt.Errorf("-size %d: blocks of -test storage are 4096 to %d bytes, a power of two", j.Size, 16<<20)
	case isAtomic(op) && j.Size != 8:
		return errors.New("-size: atomics are of 8 bytes")
	case j.Test == storageTest && j.Size*uint64(j.Depth) > areaMost:
		return fmt.Errorf("-depth %d of -size %d: together at most %d bytes", j.Depth, j.Size, areaMost)
	case j.Test == latencyTest && j.Size == 0 && op == rdma.Write:
		return errors.New("-size 0: the latency of a WRITE shows in its last byte")
	}
	return cmp.Or(harness.Within("size", j.Size, 0, maxSize), harness.Within("n", j.Count, 1, maxCount), harness.Within("depth", j.Depth, 1, maxDepth),
		harness.Within("inline", j.Inline, 0, 1<<16))
}

// encode encodes the job as a client's hello.
func (j *job) encode() ([]byte, error) { return json.Marshal(j) }

// decode decodes a client's hello.
func decode(hello []byte) (j job, err error) {
	if err := json.Unmarshal(hello, &j); err != nil {
		return j, fmt.Errorf("it does not say what to do: %w", err)
	}
	return j, j.check()
}

func (j *job) String() string {
	text := fmt.Sprintf("%s of %s over %v, %d messages of %d bytes", j.Test, j.Op, j.Transport, j.Count, j.Size)
	if j.Manager {
		text += ", connected through rdma_cm"
	}
	return text
}
