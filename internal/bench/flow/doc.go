// Package flow measures unifiedd's flows: the latency of frames from arrival until the flow submits
// them to the device at the other end, and until that device has completed them; the cost of a
// frame with more flows and queue pairs; and the cost of a message to several peers. Each is
// compared with the same daemon with one of them.
//
// Groups are compared with a log on one machine, and with etcd. Kills and stops of the leader show for
// how long clients get no acknowledgements.
//
// To measure one half alone, the generator replaces a source, or discard a sink.
package flow
