package serve

import (
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/flows/target"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/nvme/fabrics/dhchap"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/umem"
)

// storageNVMe serves a file or device to NVMe hosts, who write and read it over RDMA.
//
//	command → RDMA READ → NVMe write → completion; command → NVMe read → RDMA WRITE → completion
//
// It belongs to its worker's thread; the counters may be read from anywhere.
type NVMe struct {
	err        *pipeline.FirstError
	log        *slog.Logger
	device     *device.RDMA
	first      config.Namespace // what the flow is from
	namespaces namespaces
	keys       map[string]dhchap.Keys
	group      dhchap.Group
	nqn        string
	server     *target.Server
	manager    cm.Manager
	listener   cm.Listener
	do         stream.Doer
	serving    pipeline.Service
	health     pipeline.Health // of the disk; the watcher's
	book       *umem.Book
}

// poll is one round.
func (s *NVMe) Poll(now time.Time) (more bool) {
	if s.err.Get() == nil {
		var err error
		more, err = s.server.Poll(now)
		s.err.Note(err)
	}
	s.book.Publish()
	return more
}

func (s *NVMe) FDs(dst []unix.PollFd) []unix.PollFd { return s.server.FDs(dst) }

func (s *NVMe) Deadline(now time.Time) time.Time { return now.Add(worker.MaxWait) }

// begin lets hosts connect.
func (s *NVMe) Begin() error {
	s.serving.Start(s.serve)
	return nil
}

func (s *NVMe) Done() bool { return false }

func (s *NVMe) Traffic() (packets, bytes uint64) {
	st := s.server.Stats()
	return st.Commands, st.Read.Bytes + st.Written.Bytes
}

// check asks after the device and the disk, and whether hosts are served.
func (s *NVMe) Check(now time.Time) (waits, ends error) {
	if err := s.serving.Err(); err != nil {
		return nil, err
	}
	if waits, ends = s.device.Check(); waits != nil || ends != nil {
		return waits, ends
	}
	if err := s.namespaces.closeReleased(); err != nil {
		s.log.Warn("a disk that hosts have no more was not closed", "reason", err)
	}
	return s.health.Check(now, s.first.Path(), clientsWait, s.server.Stats().Disk), nil
}

func (s *NVMe) Trouble() error { return nil }

// halt has all hosts gone. What they asked for and was not answered they ask again elsewhere, or when they come back.
func (s *NVMe) StopReceiving() error { return s.serving.Wait() }

func (s *NVMe) Drain(time.Time, uint64) (bool, error) { return true, nil }

func (s *NVMe) Diagnose(err error) error { return err }

func (s *NVMe) Pending() int { return int(s.server.Stats().Disk.InFlight) }

func (s *NVMe) CloseQueue() error { return s.server.CloseWithin(time.Millisecond) }

// abandon has nothing to count: whoever asked knows that there was no answer.
func (s *NVMe) CountLost(*status.Flow) {}
