package porttest

import "testing"

// Opener opens a device for one case and registers its cleanup with t.Cleanup. The suite also
// closes the ports itself.
type Opener func(t testing.TB) *Link

// Case is one part of the contract.
type Case struct {
	Name  string
	Check func(t testing.TB, open Opener)
}

// Run checks the whole contract, a subtest for each case.
func Run(t *testing.T, open Opener) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Check(t, open) })
	}
}

// Cases returns the parts of the contract, for callers that run them one by one.
func Cases() []Case {
	return []Case{
		{"Counts", checkCounts},
		{"SupplyRoom", checkSupplyRoom},
		{"SendRoom", checkSendRoom},
		{"WholeMessages", checkWholeMessages},
		{"Data", checkData},
		{"Failure", checkFailure},
		{"Kick", checkKick},
		{"Idle", checkIdle},
		{"Poll", checkPoll},
		{"Allocations", checkAllocations},
		{"Close", checkClose},
		{"Reopen", checkReopen},
		{"Random", checkRandom},
	}
}
