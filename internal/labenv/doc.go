// Package labenv is what tests for the lab guest know of it: which kernel runs, and
// which cards and disks there are. Such tests are in files named *_lab_test.go with the
// build tag lab, and run by make lab; docs/lab.md describes the guest.
//
// Outside the guest every function here fails the test, since nothing of what they
// name is there.
package labenv
