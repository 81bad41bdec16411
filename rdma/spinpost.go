package rdma

import "time"

// SpinPoster is a queue pair of a provider that waits and posts in one call, because each call
// costs.
type SpinPoster interface {
	// SpinPost is that of the package.
	SpinPost(from CompletionQueue, dst []WorkCompletion, limit time.Duration, requests []SendRequest, sges []SGE) (completed, posted int, err error)
}

// SpinPost waits for completions of a queue, as Spin does, and when they all are of success posts requests to a queue pair of the same
// device, as PostSend does: for a program that knows its answer before it is asked, or its next question before the last is answered. What it
// does about the completions is then no part of the time that the peer waits. With a completion that failed nothing is posted. It
// allocates and blocks no more than those.
func SpinPost(q QueuePair, from CompletionQueue, dst []WorkCompletion, limit time.Duration, requests []SendRequest, sges []SGE) (completed, posted int, err error) {
	if s, ok := q.(SpinPoster); ok {
		return s.SpinPost(from, dst, limit, requests, sges)
	}
	if completed, err = from.Spin(dst, limit); err != nil || completed == 0 {
		return completed, 0, err
	}
	for i := range dst[:completed] {
		if dst[i].Status != Success {
			return completed, 0, nil
		}
	}
	posted, err = q.PostSend(requests, sges)
	return completed, posted, err
}
