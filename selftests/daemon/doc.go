// Package daemon runs `unifiedd run` as a process, for tests of the whole program: it is started
// in a namespace, asked for its status, stopped or killed.
//
// A Daemon belongs to one test. The process ends with the test, however that ends.
package daemon
