// Package labenv tells tests about the lab guest: which kernel runs, and which cards and disks
// exist. Such tests are in files named *_lab_test.go with the build tag lab. make lab runs them;
// docs/lab.md describes the guest.
//
// Outside the guest every function here fails the test, because the cards and disks do not exist
// there.
package labenv
