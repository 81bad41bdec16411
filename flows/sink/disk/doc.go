// Package disk is the sink that writes packets and messages to segments on a
// disk, or to a stream.
//
//	Write → layout (records in batches) → segmentWriter → nvme.Queue
//	Reap  ← tracker (written, durable)  ←
//
// The layout copies packets into extents, or makes records around them where they
// landed. Batches complete in any order. The tracker keeps the prefix that is
// written and the prefix that is durable. While the disk is full, batches wait
// for free space. Any other error ends the flow.
package disk
