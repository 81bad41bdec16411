// Package ring divides a block device into a ring of capture segments, and reads it.
//
//	offset 0      superblock, then zeros up to 1 MiB, but for the manifest of a log at 64 KiB
//	1 MiB         slot 0: a segment as package pcapng writes it
//	1 MiB + size  slot 1 ...
//	last MiB      zeros; the last 4096 bytes are a copy of the superblock
//
// Every segment on a ring has a generation, one more than the segment before it. It is in slot
// generation mod slots, so the newest overwrites the oldest. Its segment ID consists of the ring's
// ID and the generation, and is in every mark.
//
// # Old blocks under new ones
//
// A slot is not cleared before reuse. The rest of an older segment has a valid structure, and
// could complete a batch that a crash has torn. So every packet on a ring has a number in an
// option of its block (epb_packetid), and a batch is accepted only if its packets have the numbers
// that follow from its mark. Numbers are never used twice: a run of the writer begins at [Base] of
// its first generation.
//
// # Rules
//
// A Ring is a value and does not change. Nothing is shared: any goroutine may call any function,
// but only one process may write to a ring. The contents of the device are untrusted until they
// are checked. All integers are little-endian.
package ring
