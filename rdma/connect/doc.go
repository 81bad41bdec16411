// Package connect connects two queue pairs over TCP. Each side tells the other its parameters, and both queue pairs
// are brought to RTS. It knows devices only by the interfaces of package rdma.
//
// What each side does:
//
//	local, err := connect.Prepare(device, queue, settings) // the queue pair is in INIT
//	                                                       // post receives now
//	conn, err := connect.Dial(ctx, "host:port", connect.End{Queue: queue, Settings: settings, Parameters: local}, config)
//
// The other side calls Listen, then Accept of the Listener, which returns a [Request] with the peer's identity and
// offer, and then Accept of the Request with an End, which may have grants for this peer only.
//
// Order. The client sends its parameters, grants and hello in an offer. The server brings its queue pair to RTS and
// then answers with its own, so that the client, which does the same next, can send at once. The client's last message
// says that it is ready. Only then does Accept return, so that the server does not send to a peer that cannot receive.
// UD queue pairs use the same messages, and have no peer afterwards.
//
// Wire format. Every message is "uRDM", a version (1), a kind, the length of the body in two bytes, and the body.
// Numbers are big-endian; codec.go has the layouts. A message is never longer than MaxMessage, whatever its length
// says, and a handshake takes no longer than Config.Timeout. Everything from the peer is checked before it is used.
//
// Limits. No peer waits for the handshake of another. Connections whose handshake is not complete are limited by time
// (FirstByteTime, TLSTime, OfferTime) and number (MaxPending, MaxPendingPerAddress). If there are too many, a newer one
// replaces an older one that is not authenticated. Listener.Failures counts them.
//
// Security. With [Credentials] it is TLS 1.3, and both sides show a certificate of the same authority. Grants
// should depend on Peer.Name. Without credentials, every host in the network can read and change everything,
// including rkeys: Peer.Plain is true then. RDMA itself is never encrypted.
//
// After the handshake the connection stays open for small messages, and to detect that the peer is gone
// ([Conn.Receive]).
//
// Threads. Dial, Listen and a Listener may be used from any goroutine. A Conn has one sender and one receiver at a
// time; Close may be called from any goroutine.
package connect
