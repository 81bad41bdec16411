// Package cm brings two queue pairs together through the kernel's rdma_cm, as rping, NVMe over RDMA and ib_write_bw -R do:
// by IP address and port, over InfiniBand, RoCE and iWARP alike. On InfiniBand and RoCE it is
// messages of the communication manager (IBTA specification, volume 1, chapter 12), on iWARP TCP with MPA
// (RFC 5044, RFC 6581). It knows queue pairs by the interfaces of package rdma only.
//
// The side that connects:
//
//	channel, err := cm.Open()
//	route, err := channel.Resolve(ctx, cm.Path{To: to}) // says the device to make the queue pair on
//	err = route.Prepare(queue, access)                  // RESET to INIT; post receives now
//	conn, err := route.Connect(ctx, end)                // INIT to RTS
//
// The other one: Listen, then Accept of the Listener, which gives a [Request], and Prepare and Accept of
// that.
//
// The kernel's interface is spoken as it is (/dev/infiniband/rdma_cm, include/uapi/rdma/rdma_user_cm.h, version 4), not
// through librdmacm. That library opens each device once more and keeps it open for as long as the process
// lives, and makes queue pairs of its own contexts. What it adds, names of hosts and of services, Go has. Here queue pairs are anybody's: the kernel says what states they are to be led
// through with which attributes (rdma_init_qp_attr), and this package leads them. iWARP devices lead theirs
// themselves. They must be RC.
//
// What a peer says, its private data, is bytes of at most 255, which nobody has checked. InfiniBand and RoCE do not
// carry their number: what comes has the full length, filled up with zeros. Who sends can be seen by its address only, and
// nothing is encrypted.
//
// A peer that ends, or whose process dies, is noticed: Done of the Conn is closed, and the queue pair is in ERR, so that what is
// outstanding is flushed. A peer whose machine is gone says nothing, and only work requests show it (IBV_WC_RETRY_EXC_ERR).
//
// Threads. Everything may be called from any goroutine; one at a time uses a Route or a Request. A channel has one
// goroutine, which sees what happens.
//
// Limits. RC only. Soft-RoCE was at hand in tests; InfiniBand and iWARP are in the code untested.
package cm
