// Package serve has the flows that answer requests: the block server and the NVMe-oF target.
//
// A server has no source and no sink, because its requests name the data. Each server is its own
// kind of flow around the server of package blocks or target.
package serve
