// Package rdma compares unified-rdma-test with the programs of perftest.
//
// Both ends of each test are processes of the same program on one machine, the server on one CPU
// and the client on another, with one RDMA device between them. Each run has new processes. Both
// programs do the same operation with the same size, number of messages and path MTU, have the
// same number of requests in flight, poll for completions without sleeping (except
// unified-rdma-test in bandwidth tests of SEND and READ, which sleeps while its queue is full),
// and send small messages inline in latency tests, which is the default of both. Their output has
// the same columns.
//
// The comparison has the typical latency, which is the median, and the average bandwidth.
package rdma
