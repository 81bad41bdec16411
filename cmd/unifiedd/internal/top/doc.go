// Package top shows in a terminal what the daemon does now: its flows by rate, loss or latency, and one flow in
// detail.
//
// A [Model] has no I/O. It gets the documents of the daemon's status page, one a second, which the daemon makes once
// for all who look, and draws them. Rates of losses and latencies are those between the last two documents.
//
// One goroutine, that of the terminal's program, uses a Model.
package top
