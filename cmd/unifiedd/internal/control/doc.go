// Package control is the HTTP interface of a running daemon, both ends of it.
//
// [Serve] answers on a UNIX socket for the daemon's owner: status, start and stop of
// flows, reload, profiles, metrics. A TCP listener, if there is one, answers metrics
// and health only. [Status], [StartFlow], [StopFlow], [Reload] and [Plan] are the
// requests that the commands make.
package control
