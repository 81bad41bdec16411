// Package device shares the devices of a daemon between its flows: RDMA devices with the region
// registered, and network interfaces from which several flows receive. It also has common functions
// for listeners of flows.
package device
