// Package fabrics is NVMe over Fabrics without a transport: what is in capsules, read and written, and a controller as a host sees it.
//
//	CommandOf      64 bytes of a capsule      →  Command, with where its data is (Data)
//	ConnectDataOf  what a Connect brings      →  who asks for which subsystem
//	Controller     properties, admin commands →  completions, and bytes for the host
//	Check          a command to a namespace   →  the bytes of it that are meant, or why not
//
// Whoever has a transport (package flows/nvmet) receives capsules, moves data and does reads and writes; everything that can be known
// without doing so is here. All numbers are little endian, and every byte of a host's is checked. Names are those of the NVM Express
// base and fabrics specifications, and of the kernel's include/linux/nvme.h and nvme-rdma.h.
//
// Threads. A Controller belongs to one thread at a time. A Subsystem is not changed while it has controllers.
// Commands to namespaces are checked without allocating.
package fabrics
