// Package daemon runs `unifiedd run` as a process of its own, for tests that look at the
// program from outside: it is started in a namespace, asked for its status, told to
// end, or killed.
//
// A Daemon belongs to one test. Whatever becomes of the test, the process ends with it.
package daemon
