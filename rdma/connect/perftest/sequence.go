package perftest

// sequence is how a test's steps differ. A turn is a key of the first queue pair, there and back.
type sequence struct {
	before  bool // a turn before the keys of all
	between bool // a turn after queue pairs are led, before the keys of all again
	after   bool // a turn after those
	start   bool // a turn when receives are posted
	report  bool // in one direction: a turn, then reports
	done    bool // a turn, then "done", at the end
}

// sequences are as the programs' main functions have them.
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
