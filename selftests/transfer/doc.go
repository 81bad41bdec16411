// Package transfer tests unifiedd send and receive from outside. A sender in one namespace copies files and devices to a
// receiver in another, while both are killed and the link between them is cut.
//
// The environment variable UNIFIEDD_KILLS is the number of kills and cuts (make test-long SUITE=kill-transfer N=50), and
// UNIFIEDD_SEED determines their kinds and moments.
package transfer
