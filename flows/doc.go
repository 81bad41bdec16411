// Package flows is the daemon: one region, its workers, and the flows that a
// configuration (package config) describes.
//
// A [Daemon] opens the region and starts the workers. A [Flow] opens its ends, has
// a worker poll them, watches for failures, and drains when it stops:
//
//	open.go    the wiring of every kind of flow
//	flow.go    starting and stopping; watch.go: the goroutine beside a running flow
//	reload.go  changing the configuration; swap.go: the change as a transaction
//	update.go  changing the filter or the namespaces of a running flow
//
// A flow that is stopped receives no more, writes and flushes what it has, and
// then gives its frames, rings and program back.
//
// Faults. A flow waits for what can recover: an interface that is down, a disk
// that is full or does not answer. The status says what it waits for. Other faults
// end the flow: an interface or program that is gone, a disk that fails. What it
// received is written if the disk takes it, its error stays in the status, and it
// can be started again. Other flows go on.
//
// Nothing is lost silently. A sink that cannot take more stops its source, the
// kernel's rings count what they lose, and [status.Flow] adds it all up.
package flows
