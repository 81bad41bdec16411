// Package crash tests the whole program from outside. Tests build it, run it in a namespace under
// traffic, kill or stop it, and run it again.
//
// Whatever the moment of the kill, the files must have what `status` called durable. A stop must
// lose nothing. The environment variable UNIFIEDD_KILLS is the number of kills (make test-long SUITE=kill
// KILLS=50), and UNIFIEDD_SEED determines their moments.
package crash
