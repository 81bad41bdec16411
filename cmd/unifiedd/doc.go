// Unifiedd captures packets to disk through one region of memory that network
// cards and disks share.
//
// This package is flags, signals and text; what they are about lives in the
// packages below it. Each command is one file with one function that returns it,
// and root.go lists them. A command's function returns an error, and main turns
// it into the exit status: 1 where something is wrong with the machine, the
// configuration or the work, 2 where the command line makes no sense. A
// *[statusError] asks for another status.
package main
