// Unifiedd captures packets to disk through one region of memory that network cards and disks share.
//
// This package parses the command line, handles signals and prints results. The packages that it
// imports do the work. Each command is one file with one function that returns it, and main.go lists
// them. A command returns an error, and main turns it into the exit status: 1 if the machine, the
// configuration or the work has a fault, 2 if the command line is wrong. A *[statusError] has another
// status.
package main
