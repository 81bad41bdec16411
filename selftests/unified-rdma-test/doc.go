// Command unified-rdma-test shows whether RDMA works between two machines, and how fast.
//
// On one machine it is started as server, on the other with the server's address:
//
//	unified-rdma-test eth1 rxe0 /dev/nvme0n1 server
//	unified-rdma-test eth1 rxe0 - 10.0.0.1
//
// The device is one of the kernel's, such as rxe0, or roce:eth1: RoCE v2 in software on the interface.
//
// The client says what is done; the server follows. Without options data goes over RDMA into
// the server's region, from there to its disk, from the disk into the region and over RDMA
// back, and every byte is compared. With -test it is the operations of a queue pair that are
// verified, or their latency or bandwidth that is measured, in the columns of perftest. With -peer
// the other side is a program of perftest, or a pingpong or rping of rdma-core, instead. With -R queue pairs are connected
// through rdma_cm.
//
// Messages lie in the region, which is there before the device is opened, and whose memory is registered
// whole for local access; what the peer may reach is registered apart. Threads: all RDMA work is done on one thread, of a
// device in software with one of its own beside it.
package main
