// Package alarms injects faults into running daemons, one after the other, and checks that each is named by an
// alert and explained by `unifiedd status`, `unifiedd doctor` or `unifiedd trace`, and that there is no alert while all
// is well.
//
// A real Prometheus reads the metrics of the daemons with the rules of packaging/prometheus. The short form divides
// all spans of the rules by the same number, and nothing else of them, and takes the faults in an order that follows
// from a seed. The long form (make test-long SUITE=alarms) uses the rules as they are, after ten minutes of traffic.
package alarms
