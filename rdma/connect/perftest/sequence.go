package perftest

// sequence describes how the steps of a test differ. In a turn, each side sends the key of the
// first queue pair.
type sequence struct {
	before  bool // a turn before all keys are exchanged
	between bool // a turn after queue pairs are connected, before all keys are exchanged again
	after   bool // a turn after all keys are exchanged again
	start   bool // a turn when receives are posted
	report  bool // in one direction: a turn, then reports
	done    bool // a turn, then "done", at the end
}

// sequences are taken from the programs' main functions.
var sequences = map[Test]sequence{
	SendLatency:     {between: true, start: true, done: true},
	SendBandwidth:   {between: true, start: true, done: true},
	WriteLatency:    {before: true, after: true},
	WriteBandwidth:  {after: true, report: true, done: true},
	ReadLatency:     {before: true, after: true, done: true},
	ReadBandwidth:   {after: true, report: true, done: true},
	AtomicLatency:   {before: true, after: true, done: true},
	AtomicBandwidth: {after: true, report: true, done: true},
}
