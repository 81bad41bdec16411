// Package disk is the sink that writes packets and messages to segments on a
// disk, or to a stream.
//
//	Write → layout (records in batches) → segmentWriter → nvme.Queue
//	Reap  ← tracker (written, durable)  ←
//
// The layout copies packets into extents or makes records around them where they
// landed. Batches complete in any order; the tracker keeps the prefix that is
// written and the prefix that is durable. A full disk holds batches back until
// somebody frees space; any other error ends the flow.
package disk
