// Package transfer compares unifiedd send and receive with other ways to copy a file to another machine's disk.
//
// Against rsync, both copy the same file over the same link between two namespaces, from one directory of a disk to another
// one, durable at the end (rsync --fsync), in turn. rsync runs as client and daemon over TCP, without encryption; it has
// checksums, too. The link has all offloads of veth, which TCP uses and RoCE in software does not.
//
// Against cp over NVMe over Fabrics, both run in the lab guest, whose kernel has the initiator: cp writes to a file system
// on a remote disk, over Soft-RoCE, and send writes to a receiver over the same device, whose directory is on the same disk.
//
// The comparison has the rate, and the processor time of both sides (of the guest: of everything).
package transfer
