package wire

import "testing"

// TestWithoutCarryless: without the processor's instructions, the tables compute the same ICRC.
func TestWithoutCarryless(t *testing.T) {
	defer func(was bool) { folds = was }(folds)
	folds = false
	TestICRCInPieces(t)
	TestICRCIsOfWhatStays(t)
}
