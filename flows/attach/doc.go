// Package attach is the daemon's side of programs that attach to it: other processes of the same host that get
// frames of the region, and give frames.
//
// A program meets the daemon at a unix socket ([Hub]), and opens ports of flows. A port is four rings in shared
// memory ([Port]); a flow's [End] passes frames through them. Only the worker's thread touches the rings, and it
// believes nothing that it reads there: it copies each entry once and checks the copy. What fails a check ends the
// program's connection. All frames that the program had are then with the flow again.
package attach
