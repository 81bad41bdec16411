// Package serve has the flows that answer requests: the block server and the
// NVMe-oF target.
//
// A server has no source and no sink. Its requests name the data, so that each is
// a flow of its own kind around the server of package blocks or target.
package serve
