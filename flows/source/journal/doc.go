// Package journal is the source that reads a log on disk and follows it.
//
// A goroutine of its own reads the records, since reading blocks. It hands them over in chunks. The worker passes each
// chunk to the sink with one call, and the records stay in the chunk's memory: no frame of the region is used.
//
// Only records that count are read: of a group's log those that are committed.
package journal
