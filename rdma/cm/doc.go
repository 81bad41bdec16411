// Package cm connects two queue pairs through the kernel's rdma_cm, as rping, NVMe over RDMA and ib_write_bw -R do: by
// IP address and port, over InfiniBand, RoCE and iWARP. On InfiniBand and RoCE these are messages of the communication
// manager (IBTA specification, volume 1, chapter 12), on iWARP TCP with MPA (RFC 5044, RFC 6581). It knows queue pairs
// only by the interfaces of package rdma.
//
// The side that connects:
//
//	channel, err := cm.Open()
//	route, err := channel.Resolve(ctx, cm.Path{To: to}) // says which device the queue pair must be made with
//	err = route.Prepare(queue, access)                  // RESET to INIT; post receives now
//	conn, err := route.Connect(ctx, end)                // INIT to RTS
//
// The other side calls Listen, then Accept of the Listener, which returns a [Request], and then Prepare and Accept of
// the Request.
//
// The package uses the kernel's interface (/dev/infiniband/rdma_cm, include/uapi/rdma/rdma_user_cm.h, version 4) and not
// librdmacm. That library opens each device again, keeps it open for the life of the process, and makes queue pairs
// with its own contexts. Here queue pairs may come from any provider: the kernel says which attributes each state needs
// (rdma_init_qp_attr), and this package sets them. iWARP devices change the state themselves. Queue pairs must be RC.
//
// Private data of a peer is at most 255 untrusted bytes. InfiniBand and RoCE do not transmit its length: the receiver
// gets the full length, with zeros at the end. Peers are identified only by their address, and nothing is encrypted.
//
// When a peer ends the connection, or its process dies, Done of the Conn is closed and the queue pair is in ERR, so that
// everything outstanding is flushed. When a peer's machine dies there is no message, and only work requests fail
// (IBV_WC_RETRY_EXC_ERR).
//
// Threads. Everything may be called from any goroutine, except that one goroutine at a time uses a Route or a Request. A
// channel has one goroutine, which receives the kernel's events.
//
// Limits. RC only. It was tested with Soft-RoCE; the code for InfiniBand and iWARP is untested.
package cm
