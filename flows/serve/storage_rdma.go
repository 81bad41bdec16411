package serve

import (
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/blocks"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// clientsWait is what a disk that does not answer means for clients.
const clientsWait = "clients wait"

// storageRDMA serves the blocks of a file or device to RDMA clients who ask for them.
//
//	request → NVMe read, or the cache → RDMA WRITE with immediate into the client's memory
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type Blocks struct {
	err      *pipeline.FirstError
	log      *slog.Logger
	device   *device.RDMA
	target   *nvme.Target
	server   *blocks.Server
	listener *connect.Listener
	secure   bool // connections are TLS
	do       stream.Doer
	serving  pipeline.Service
	health   pipeline.Health // of the disk; the watcher's
	book     *umem.Book
}

// poll is one round.
func (s *Blocks) Poll(now time.Time) (more bool) {
	if s.err.Get() == nil {
		var err error
		more, err = s.server.Poll(now)
		s.err.Note(err)
	}
	s.book.Publish()
	return more
}

func (s *Blocks) FDs(dst []unix.PollFd) []unix.PollFd { return s.server.FDs(dst) }

func (s *Blocks) Deadline(now time.Time) time.Time { return now.Add(worker.MaxWait) }

// begin lets clients connect.
func (s *Blocks) Begin() error {
	s.serving.Start(s.serve)
	return nil
}

func (s *Blocks) Done() bool { return false }

func (s *Blocks) Traffic() (packets, bytes uint64) {
	st := s.server.Stats()
	return st.Served, st.Bytes
}

// check asks after the device and the disk, and whether clients are served.
func (s *Blocks) Check(now time.Time) (waits, ends error) {
	if err := s.serving.Err(); err != nil {
		return nil, err
	}
	if waits, ends = s.device.Check(); waits != nil || ends != nil {
		return waits, ends
	}
	return s.health.Check(now, s.target.Path(), clientsWait, s.server.Stats().Disk), nil
}

func (s *Blocks) Trouble() error { return nil }

// halt has all clients told, and gone. What they asked for is not answered.
func (s *Blocks) StopReceiving() error { return s.serving.Wait() }

func (s *Blocks) Drain(time.Time, uint64) (bool, error) { return true, nil }

func (s *Blocks) Diagnose(err error) error { return err }

func (s *Blocks) Pending() int { return int(s.server.Stats().Disk.InFlight) }

func (s *Blocks) CloseQueue() error { return s.server.CloseWithin(time.Millisecond) }

// abandon has nothing to count: whoever asked knows that there was no answer.
func (s *Blocks) CountLost(*status.Flow) {}
