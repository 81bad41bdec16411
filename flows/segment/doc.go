// Package segment writes the output of a flow to a disk in segments: numbered
// files, files that rotate as tcpdump's do, one file, or the slots of a ring on
// a block device.
//
// A Manager prepares segments, names them, seals full ones and deletes old
// ones. The worker of the flow writes batches:
//
//	Acquire → the worker writes and flushes batches → Retire
//
// A segment begins with a head and ends with an end marker. One without an end
// marker was open when its daemon died. Open recovers it: it keeps the batches
// before the first damaged one, and writes the end marker after them.
//
// The files are:
//
//	manager.go      the life of a segment, from prepared to retired
//	segment.go      one segment, and positions in a flow's output
//	names.go        paths; rotation.go: paths of rotating files
//	freespace.go    the free-space reserve
//	preallocate.go  files without a fixed size
//	recovery.go     sealing and recovery; retention.go: deletion
//	ring.go         rings on devices
//	manifest.go     manifests of logs
//	usage.go        contents, for the status; indexer.go: indexes; owner.go: file owners
package segment
