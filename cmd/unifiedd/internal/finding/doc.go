// Package finding says what is wrong with a flow and what to do about it, in the same sentences for unifiedd top and the
// status page. unifiedd status and the log, which only the operator reads, have those of flows/status.
//
// A finding names flows, interfaces and peers, as /metrics does, and no paths, addresses or errors: anybody may see it.
package finding
