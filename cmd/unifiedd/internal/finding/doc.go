// Package finding says what is wrong with a flow and what to do about it, in the same sentences for unifiedd status,
// unifiedd top and the status page.
//
// A finding names flows, interfaces and peers, as /metrics does, and no paths, addresses or errors: anybody may see it.
package finding
