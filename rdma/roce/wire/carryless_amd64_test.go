package wire

import "testing"

// TestWithoutCarryless has tables do what the processor cannot.
func TestWithoutCarryless(t *testing.T) {
	defer func(was bool) { folds = was }(folds)
	folds = false
	TestICRCInPieces(t)
	TestICRCIsOfWhatStays(t)
}
