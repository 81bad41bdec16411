// Package functions tests a daemon in a container that has virtual functions of a card for itself. The container has
// mounts, processes and a network of its own, and the capabilities that docs/containers.md names. The tests run in the
// lab guest.
package functions
