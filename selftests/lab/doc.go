// Lab boots a guest with a stock Debian kernel in an emulator and runs in it what
// needs devices this machine may not have: cards with zero copy, an NVMe disk, two
// NUMA nodes. Without -cmd it runs every test that is built with the tag lab.
// docs/lab.md tells more.
//
// Its exit status says whose fault a failure is: 1 a test or the command, 3 the
// guest's kernel, 4 what comes before the guest takes commands; 2 are wrong options.
package main
