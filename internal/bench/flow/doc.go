// Package flow measures the latency of packets from arrival until a flow has submitted them to the device at the other
// end, and until that device has completed them. And it compares groups with a log on one machine, and with etcd.
package flow
