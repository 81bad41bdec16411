// Package control is the HTTP interface of a running daemon: server and client.
//
// [Serve] answers the daemon's owner on a UNIX socket: status, start and stop of flows, reload,
// profiles, metrics. A TCP listener, if there is one, answers metrics and health only. The commands
// send their requests with [Status], [StartFlow], [StopFlow], [RestartFlow], [Reload] and [Plan].
package control
