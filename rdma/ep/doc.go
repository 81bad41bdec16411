// Package ep has the parts that the endpoints of a server share: buffers for small control
// messages, completion queues that a worker polls or waits for, and lists that post work requests
// in batches.
//
// It knows no protocol. A server keeps a PostList for each queue pair and a Completions for each
// completion queue. All of it belongs to the worker's thread. It does not allocate after it is
// open, and takes no lock.
package ep
