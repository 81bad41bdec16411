// Package labenv tells tests about the lab guest: which kernel runs, and which cards and disks
// exist. Such tests are in files named *_lab_test.go, and call Guest first. make lab runs them;
// docs/background/testing.md describes the guest.
//
// Outside the guest Guest skips the test, and every other function here fails it, because the cards
// and disks do not exist there.
package labenv
