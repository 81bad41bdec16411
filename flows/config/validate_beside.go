package config

import "math"

// beside checks what goes with a place in a dispatcher, beside other programs.
func (v *validator) beside(path string, f *From) {
	at, priority := join(path, "beside"), join(path, "priority")
	v.check(within(f.Priority, 0, math.MaxInt32), priority, "%d is not from 0 to %d", f.Priority, math.MaxInt32)
	if !v.given(at, string(f.Beside)) {
		if _, given := v.places[priority]; given && !v.explained(priority) {
			v.refuse(priority, wrong("remove it, or say beside: libxdp", "orders the programs of a dispatcher, and this flow joins none"))
		}
		return
	}
	if v.explained(at) {
		return
	}
	v.checkErr(at, member(f.Beside, allBesides))
	if f.Mirror != "" {
		v.refuse(at, wrong("remove it, or mirror", "copies are taken beside whatever XDP program there is"))
	}
	v.check(f.Timestamps != TimestampsHardware, join(path, "timestamps"),
		"a program in a dispatcher cannot ask the card: say prefer or software, or remove beside")
}
