// Package crash holds tests of the whole program from outside: it is built, run
// in a namespace under traffic, killed, stopped, and run again.
//
// What `status` has called durable must be in the files afterwards, whatever the
// moment of the kill; a stop must lose nothing at all. The number of kills comes
// from the environment variable UNIFIEDD_KILLS (make test-kill KILLS=50) and their
// moments from UNIFIEDD_SEED.
package crash
