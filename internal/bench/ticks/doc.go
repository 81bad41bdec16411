// Package ticks compares traders: how long each takes from a tick, which is a UDP packet, to the order that answers it on
// a TCP connection.
//
// unified-tick-test is the exchange, at the other end of a veth pair, on CPU 0. It measures by the kernel's stamps, from
// driver to driver, so it may sleep and does not disturb. Ticks come at a rate that no trader finds hard, and each order
// is compared byte for byte. The traders run one after the other in each round, on CPU 1, and spin:
//
//   - a program that is attached to a daemon, whose flow takes ticks by AF_XDP and puts them in order; it runs on CPU 0,
//     because the worker spins on CPU 1, and sends orders through a socket of the kernel,
//   - a plain program in Go, and one in C (selftests/peers/tick-peer), on sockets of the kernel,
//   - an echo in C over AF_XDP, without TCP: the least that there is.
package ticks
