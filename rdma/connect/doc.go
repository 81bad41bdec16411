// Package connect brings two queue pairs together over TCP: it tells each side what it must
// know of the other, and leads both to where they can send. It knows devices only by the
// interfaces of package rdma.
//
// What each side does:
//
//	local, err := connect.Prepare(device, queue, settings) // the queue pair is in INIT
//	                                                       // post receives now
//	conn, err := connect.Dial(ctx, "host:port", connect.End{Queue: queue, Settings: settings, Parameters: local}, config)
//
// or, as the other side, Listen, then Accept of the Listener, which gives a [Request] that says who asks
// for what, and Accept of that with an End, which may have grants for just this peer.
//
// The order. The client says its parameters, grants and hello in an offer. The server leads
// its queue pair to RTR and RTS and only then answers with its own, so the client, which then
// does the same, can send at once. The client's last word is that it is ready: only
// with that does Accept return, so that the server does not send to one who cannot receive.
// Datagrams take the same way without a peer of their own.
//
// The wire. Every message is "uRDM", a version (1), a kind, the length of what follows in two bytes, and
// that; numbers are big-endian, codec.go has the layouts. No message is longer than MaxMessage allows, whatever its
// length says, and a handshake takes no longer than Config.Timeout. Everything from the peer is checked
// before it is used.
//
// Bounds. No peer waits for another one's handshake. What peers hold before they are connected is bounded by time (FirstByteTime, TLSTime, OfferTime) and
// number (MaxPending, MaxPendingPerAddress); a newer connection takes the place of an older one that has proven nothing. Listener.Failures counts them.
//
// Trust. With [Credentials] it is TLS 1.3 and both sides show a certificate of the same
// authority; Peer.Name of the one who asks is what grants should depend on. Without, anybody on the
// way can read and change everything, rkeys among it: Peer.Plain says so, and Peer.String in words. RDMA itself is never
// encrypted by this.
//
// After the handshake the connection stays as a way for small messages, and to see
// that the peer is gone ([Conn.Receive]).
//
// Threads. Dial, Listen and a Listener may be used from any goroutine. A Conn takes one
// sender and one receiver at a time; Close may come from anywhere.
//
// Packages pingpong and perftest, below, speak the formats of other programs.
package connect
