// Command unified-rdma-test tests and measures RDMA between two machines.
//
// Start it on one machine as server, on the other with the server's address:
//
//	unified-rdma-test eth1 rxe0 /dev/nvme0n1 server
//	unified-rdma-test eth1 rxe0 - 10.0.0.1
//
// The device is one of the kernel's, such as rxe0, or roce:eth1: RoCE v2 in software on the interface.
//
// The client chooses the test. Without options data goes over RDMA into the server's region, to its
// disk, back into the region and over RDMA to the client, which compares every byte. With -test it
// verifies the operations of a queue pair, or measures their latency or bandwidth, in the columns
// of perftest. With -peer the other side is a pingpong or rping of rdma-core. With -R rdma_cm connects the queue pairs.
//
// Messages are in the region. The program opens the region before the device and registers all of
// it for local access. Memory for the peer is registered separately. One thread does all RDMA work.
// A device in software has a thread of its own.
package main
