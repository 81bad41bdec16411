// Package rdma compares unified-rdma-test with the programs of perftest.
//
// Both ends of each test are processes of the same program on one machine, the server on
// one CPU and the client on another, with one RDMA device between them. All processes are
// fresh for each run. Both programs are asked for the same operation, size, number of messages
// and path MTU, have the same number of requests under way, look for completions without
// sleeping (but for unified-rdma-test in a test of the bandwidth of SEND or READ, which sleeps while its queue
// is full), and send small messages inline in tests of latency, which is the default of both. What they
// print has the same columns, so that it is read in the same way.
//
// Compared are the typical latency, which is the median, and the average bandwidth.
package rdma
