package nvme

import (
	"fmt"

	"github.com/unifiedd/unifiedd/umem"
)

// Config says what queue to open. The zero value of every field but Worker is valid.
type Config struct {
	Worker  *umem.Holder // Send and Supply take frames from it, Reap and Recv return them to it
	Name    string       // for people; default: the worker's name
	Depth   int          // reads and writes at a time, a chain counts as one; 1 to 4096, default 64
	Frames  int          // frames in the queue at a time, from Depth to 65536; default Depth
	Pieces  int          // frames chained in one operation, 1 to 1024; default 64, or Frames if that is less
	Targets int          // targets at a time, 1 to 4096, default 16

	// Passthrough also accepts NVMe nodes as targets. Their commands bypass the kernel's block
	// layer. The rings' entries are then twice as large.
	Passthrough bool
	// Apart keeps a target that does not answer from delaying others. The kernel may then start a
	// thread for each operation that would block. The kernel keeps the limit for the thread that
	// submits, so it covers all queues of that thread. Without Apart the limit is four per
	// processor, or the entries of the thread's first submission queue if those are fewer. If
	// operations of one file wait in all of them, they delay those of others
	// (IORING_REGISTER_IOWQ_MAX_WORKERS, io_uring_register(2)).
	Apart bool

	// Outside is memory that is not the region's and that Send also takes blocks of. It is for files
	// and block devices, not for NVMe nodes.
	Outside Outside

	without feature // features not to use even if the kernel has them; for tests
}

// MaxFlushes is the largest number of flushes, discards and zeroings in one queue at a time.
const MaxFlushes = 16

const (
	maxDepth   = 4096
	maxFrames  = 65536
	maxPieces  = 1024 // UIO_MAXIOV
	maxTargets = 4096

	// maxMessage is the largest number of bytes of one operation. The kernel moves up to 2 GiB less
	// a page (MAX_RW_COUNT) at once.
	maxMessage = 1 << 30
)

func (c *Config) setDefaults() error {
	if c.Worker == nil {
		return fmt.Errorf("no worker given: the queue needs a holder to take frames from")
	}
	if c.Name == "" {
		c.Name = c.Worker.Name()
	}
	if c.Depth == 0 {
		c.Depth = 64
	}
	for _, f := range []struct {
		name       string
		value      *int
		usual      int
		least, max int
	}{
		{"depth", &c.Depth, 64, 1, maxDepth},
		{"frames", &c.Frames, c.Depth, c.Depth, maxFrames},
		{"pieces", &c.Pieces, 64, 1, maxPieces},
		{"targets", &c.Targets, 16, 1, maxTargets},
	} {
		if *f.value == 0 {
			*f.value = f.usual
		}
		if *f.value < f.least || *f.value > f.max {
			return fmt.Errorf("%s %d: it must be from %d to %d", f.name, *f.value, f.least, f.max)
		}
	}
	c.Pieces = min(c.Pieces, c.Frames)
	return nil
}

// plan returns the ring that the queue needs.
func (c *Config) plan(region *umem.Region) ringPlan {
	p := ringPlan{region: region, depth: uint32(c.operations()), without: c.without, always: baseSetup}
	if c.Passthrough {
		p.always |= setupSQE128 | setupCQE32
	}
	return p
}

// operations returns how many operations there can be at a time: reads and writes, and flushes,
// discards and zeroings.
func (c *Config) operations() int { return c.Depth + MaxFlushes }
