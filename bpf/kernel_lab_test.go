package bpf

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestOnThisKernel runs the tests that depend on a kernel's verifier on the kernels of the lab:
// filters, rules, and users' own programs.
func TestOnThisKernel(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "the same tests run on this machine's kernel in their whole form")
	for name, run := range map[string]func(*testing.T){
		"LoadsInEveryConfiguration":         TestLoadsInEveryConfiguration,
		"LongListsLoad":                     TestLongListsLoad,
		"VerifierRefusalIsExplained":        TestVerifierRefusalIsExplained,
		"TooLongJumpIsExplained":            TestTooLongJumpIsExplained,
		"ReplaceKeepsTheOldFilterOnError":   TestReplaceKeepsTheOldFilterOnError,
		"AgreesWithTcpdump":                 TestAgreesWithTcpdump,
		"RandomExpressionsAgreeWithTcpdump": TestRandomExpressionsAgreeWithTcpdump,
		"RedirectsCountsAndStamps":          TestRedirectsCountsAndStamps,
		"MultiBufferPacketsAreCountedWhole": TestMultiBufferPacketsAreCountedWhole,
		"ReplaceLosesNoPacket":              TestReplaceLosesNoPacket,
		"FirstRuleDecides":                  TestFirstRuleDecides,
		"ManyRules":                         TestManyRules,
		"OwnProgramDecides":                 TestOwnProgramDecides,
		"OwnProgramRefused":                 TestOwnProgramRefused,
		"ForeignProgramIsNamedAndLeftAlone": TestForeignProgramIsNamedAndLeftAlone,
		"CrashTakesTheProgramOff":           TestCrashTakesTheProgramOff,
	} {
		t.Run(name, run)
	}
}
