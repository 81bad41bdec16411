package config

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Bounds of how captures are sent.
const (
	maxLoop     = 1_000_000_000
	maxSpin     = time.Millisecond
	maxLate     = time.Minute
	maxCaptures = 1024
)

// parseLoop reads how often captures are sent.
func parseLoop(s string) (int, error) {
	if s == "endless" {
		return Endless, nil
	}
	return parseInt(s)
}

// captures checks the captures that a flow sends.
func (v *validator) captures(path string, f *From) {
	at := join(path, "files")
	_, listed := v.places[at]
	if listed = listed || f.Files != nil; listed && !v.explained(at) {
		v.check(len(f.Files) > 0 && len(f.Files) <= maxCaptures, at, "%d captures are listed; 1 to %d are possible", len(f.Files), maxCaptures)
		v.check(f.File == "", at, "a file is given beside the list: put it in the list")
	}
	for i, name := range f.Files {
		v.checkErr(index(at, i), checkPath(name, maxFilePath))
	}
	if f.Device != "" {
		v.refuse(join(path, "device"), wrong("make a file of it (unifiedd export), and send that", "a ring on a device cannot be sent"))
	}
	loop := join(path, "loop")
	v.check(f.Loop == Endless || within(f.Loop, 1, maxLoop), loop, "%d is not from 1 to %d, or the word endless", f.Loop, maxLoop)
	if f.Object != (Object{}) || f.Rules != nil {
		v.refuse(join(path, "filter"), wrong("say one expression", "rules and programs decide on packets that arrive, not on those of captures"))
		return
	}
	v.filter(join(path, "filter"), f.Filter)
}

// sending checks how packets of captures are sent.
func (v *validator) sending(path string, t *To) {
	v.need(join(path, "interface"), t.Interface, "the name of a network interface")
	v.checkErr(join(path, "interface"), checkInterface(t.Interface))
	v.checkErr(join(path, "zero_copy"), member(t.ZeroCopy, allZeroCopies))
	v.check(within(t.Ring, MinRing, MaxRing) && powerOfTwo(uint64(t.Ring)), join(path, "ring"),
		"%d is not a power of two from %d to %d", t.Ring, MinRing, MaxRing)
	v.checkErr(join(path, "pace"), checkPace(t.Pace))
	v.checkErr(join(path, "spin"), upTo(t.Spin, maxSpin))
	v.checkErr(join(path, "late"), upTo(t.Late, maxLate))
	if t.MaxGap < 0 {
		v.refuse(join(path, "max_gap"), errors.New("is negative"))
	}
}

func upTo(d, most time.Duration) error {
	if within(d, 0, most) {
		return nil
	}
	return fmt.Errorf("%s is not up to %s", d, most)
}

// paces makes one setting of the parts of a pace.
func paces(keys []string) []string {
	for i, key := range keys {
		if strings.HasPrefix(key, "to.pace.") {
			keys[i] = "to.pace"
		}
	}
	return keys
}
