// Package transfer compares unifiedd send and receive with rsync.
//
// Both copy the same file over the same link between two namespaces, from one directory of a disk to another one, durable
// at the end (rsync --fsync), in turn. rsync runs as client and daemon over TCP, without encryption; it has checksums,
// too. The link has all offloads of veth, which TCP uses and RoCE in software does not.
//
// The comparison has the rate, and the processor time of both sides.
package transfer
