//go:build race

package testenv

// raceEnabled means that the program has the race detector.
const raceEnabled = true
