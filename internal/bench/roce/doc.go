// Package roce compares unified-rdma-test on the provider roce with other programs that exchange or move
// bytes between two hosts without an RDMA card.
//
// The two hosts are network namespaces joined by a veth pair, the server's end on one CPU and the client's on
// another. All processes are fresh for each run, and the programs run one after the other. The comparison
// has:
//
//   - latency, half of a round trip, median and 99th percentile, of SEND and WRITE over RC, with
//     selftests/peers/xsk-peer/xsk-pingpong, which is what AF_XDP itself takes for a message and its acknowledgement
//     with no protocol around them, and with sockperf over UDP. All of them spin;
//   - bandwidth of SEND and WRITE over RC, and the processor time of both ends for a gigabyte, with one TCP
//     stream of iperf3: with packets as they would be on a wire, as ours are, and with the large segments that
//     the kernel hands over between namespaces of one machine. iperf3 sleeps when it has to wait and ours spins.
//
// The processor time excludes the cost of starting, which is measured with very short runs.
package roce
