// Package afxdp is the source that receives packets from the AF_XDP queues of network interfaces.
//
// It owns everything around the rings: the filter on the interface, mirrors, steering by the card,
// the length of the rings, the clocks of packets, and the counters that account for every packet.
//
// The worker calls Receive and Supply. Observe runs on any goroutine and reads counters that the
// worker publishes. Open and Close run while the worker does not poll the flow.
package afxdp
