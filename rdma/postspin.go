package rdma

import "time"

// SendSpinner is a queue pair of a provider that posts and waits in one call, because each call
// costs.
type SendSpinner interface {
	// PostSpin is that of the package.
	PostSpin(requests []SendRequest, sges []SGE, from CompletionQueue, dst []WorkCompletion, limit time.Duration) (posted, completed int, err error)
}

// PostSpin posts requests, as PostSend does, and when the device has taken them all, waits for
// completions of a queue of the same device, as Spin does: what a program needs that asks and has
// nothing else to do until it is answered. It allocates and blocks no more than those.
func PostSpin(q QueuePair, requests []SendRequest, sges []SGE, from CompletionQueue, dst []WorkCompletion, limit time.Duration) (posted, completed int, err error) {
	if s, ok := q.(SendSpinner); ok {
		return s.PostSpin(requests, sges, from, dst, limit)
	}
	if posted, err = q.PostSend(requests, sges); err != nil {
		return posted, 0, err
	}
	completed, err = from.Spin(dst, limit)
	return posted, completed, err
}
