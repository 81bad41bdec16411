package config

import (
	"fmt"
	"slices"
)

// minHigh is what a flow takes from its source at once.
const minHigh = 64

// watermarks checks what a flow may hold.
func (v *validator) watermarks(path string, f *Flow) {
	w, high, low := f.Watermarks, join(path, "high"), join(path, "low")
	_, given := v.places[path]
	if !given && w == (Watermarks{}) || v.explained(path) {
		return
	}
	frames := int(min(v.Region.Size, maxRegion) / Size(max(v.Region.Frame, 1)))
	if within(w.High, minHigh, frames) {
		v.check(within(w.Low, 1, w.High-1), low, "%d is not from 1 to %d, less than high", w.Low, w.High-1)
	} else {
		v.refuse(high, fmt.Errorf("%d is not from %d to %d, the frames of the region", w.High, minHigh, frames))
	}
	if i := slices.IndexFunc(f.Stages, func(s Stage) bool { return s.Sum != nil }); i >= 0 {
		v.refuse(path, wrong("remove them, or lower from.window", "a sum waits for messages of all clients, and must not be kept from them"))
	}
}
