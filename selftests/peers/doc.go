// Package peers has programs that comparisons in internal/bench measure: the C programs xsk-peer, log-peer and tick-peer
// beside ours, soaker for idle processors, and etcd-peer, a module of its own, for groups.
package peers
