// Package flows is the daemon: one region, its workers, and the flows that a configuration (package config)
// describes.
//
// A [Daemon] opens the region and starts the workers. A [Flow] opens its ends, has a worker poll them,
// watches for failures, and drains when it stops:
//
//	open.go    the wiring of every kind of flow
//	flow.go    starting and stopping; watch.go: the goroutine that watches a running flow
//	reload.go  changing the configuration; swap.go: the change as a transaction
//	update.go  changing the filter or the namespaces of a running flow
//
// A flow that stops receives nothing more, writes and flushes what it has received, and then releases its
// frames, rings and program.
//
// Faults. A flow waits while a fault can recover: an interface that is down, a disk that is full or does not
// answer. The status says what the flow waits for. Other faults end the flow: an interface or program that is
// gone, a disk that fails. If the disk still accepts writes, the flow writes what it received. Its error
// stays in the status, and the flow can be started again. Other flows continue.
//
// Every loss is counted. A sink that cannot take more stops its source, the kernel's rings count what they
// lose, and [status.Flow] accounts for every packet.
package flows
