// Package flow measures unifiedd's flows: how long frames take from when they arrive until the device at the other end is told of them and done with them,
// what a frame costs as flows and queue pairs grow, and what it takes to have a message at several peers. What is measured against is the same daemon with one of them.
//
// Ends are replaced by those that make packets and those that discard them, where one half is to be measured alone.
package flow
