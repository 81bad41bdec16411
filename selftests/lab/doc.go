// Lab boots a guest with a stock Debian kernel in an emulator and runs programs in it that need
// devices this machine may not have: cards with zero copy, an NVMe disk, two NUMA nodes. Without
// -cmd it runs every test that is built with the tag lab. docs/background/testing.md has the details.
//
// Its exit status shows the cause of a failure: 1 a test or the command, 2 wrong options, 3 the
// guest's kernel, 4 a fault before the guest takes commands.
package main
