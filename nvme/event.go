package nvme

// FD is a descriptor that polls readable when Recv, Reap or Flushed may have
// something.
func (q *Queue) FD() int { return q.ring.fd }

func (q *Queue) closeEvent() error { return nil }
