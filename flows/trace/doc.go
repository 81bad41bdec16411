// Package trace is a flight recorder: for each flow a file of fixed size in memory has what the flow did last. The
// file outlives the process, so that it can be read after a crash or a kill.
//
// A [Recorder] writes it. The worker's thread records each round of a flow that moved something or whose state
// changed: how many packets and bytes, how long after the round before, how many frames the flow holds. It also
// stores which [Step] of a round it is in. Other goroutines record notes: states, losses by reason, errors. Neither
// has bytes of packets or messages.
//
// A file belongs to a [Directory], one for each daemon, in a file system in memory (tmpfs): the kernel writes files
// on a disk back, and a store to such a page can wait for the disk. The pages are allocated when the file is made,
// because a store to a page that the file system has no room for ends the process.
//
// Begin, Step and End are for the thread that polls the flow, and neither allocate nor lock. Note may be called by
// any goroutine, and takes a lock. A nil Recorder records nothing. [Read] may be called by any process at any time.
//
// Layout of a file, numbers in the byte order of the machine: a page with magic 8 (uFLIGHT1), length of the rings
// in records 4 (rounds) and 4 (notes), process 4, length of the flow's name 2 and of the version 2, time of the
// start 8; at 64 what the worker does: step 8, time of the round 8, rounds 8, packets 8, bytes 8, records 8; at 128
// number of notes 8; at 192 name 64, at 256 version 64. Then the rounds (32 bytes: time 8, packets 4, bytes 4,
// nanoseconds since the round before 4, frames 4, flags 4, 0), then the notes (128: time 8, value 8, kind 2, length
// 2, 0, text 104). Times are nanoseconds since 1970.
package trace
