// Package fabrics is NVMe over Fabrics without a transport. It decodes and encodes capsules, and is
// a controller as a host sees it.
//
//	CommandOf      64 bytes of a capsule      →  Command, with the place of its data (Data)
//	ConnectDataOf  data of a Connect          →  the NQNs of host and subsystem
//	Controller     properties, admin commands →  completions, and bytes for the host
//	Check          a command to a namespace   →  its range of bytes, or a Status
//
// A transport (package flows/nvmet) receives capsules, moves data and does reads and writes.
// Everything that needs none of that is here. All numbers are little endian, and the package checks
// every byte of a host. Names are those of the NVM Express base and fabrics specifications, and of
// the kernel's include/linux/nvme.h and nvme-rdma.h.
//
// Threads. A Controller belongs to one thread at a time. Only the thread of its Controllers may
// change a Subsystem. It then calls Changed of each Controller for every namespace that it added,
// removed or changed. Checking a command to a namespace allocates nothing.
package fabrics
