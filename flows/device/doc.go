// Package device shares the devices of a daemon between its flows: RDMA devices
// with the region registered, and network interfaces whose packets several flows
// receive. It also has what every listener of a flow needs.
package device
