// Package ring lays a ring of capture segments over a block device, and reads it.
//
//	offset 0      superblock, then zeros up to 1 MiB, but for the manifest of a log at 64 KiB
//	1 MiB         slot 0: a segment as package pcapng writes it
//	1 MiB + size  slot 1 ...
//	last MiB      zeros; the last 4096 bytes are a copy of the superblock
//
// Every segment begun on a ring has a generation, one more than the one before. It lies in slot generation mod slots, so
// the newest overwrites the oldest. Its segment id is the ring's id and the generation, and so is in every mark.
//
// # Old blocks under new ones
//
// A slot is not wiped before it is used again. What is left of an older segment is well formed, and under a batch that
// was torn by a crash it could pass for the batch's own. So every packet on a ring has a number, in an option of its block
// (epb_packetid), and a batch is taken only when its packets have the numbers that follow from its mark. Numbers are never
// used twice: a run of the writer begins at [Base] of its first generation.
//
// # Rules
//
// A Ring is a value and does not change. Nothing here is shared: any function may be called from any goroutine, but one
// process only may write to a ring. What is on the device is hostile until checked. All integers are little-endian.
package ring
