// Package daemon runs `unifiedd run` as a process, for tests of the whole program. A test starts it
// in a namespace, reads its status, and stops or kills it.
//
// A Daemon belongs to one test. The process ends with the test, in every case.
package daemon
