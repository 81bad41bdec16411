package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Keep is how much of a recording stays. Of several limits the one that is reached first applies. The zero value has
// none: everything stays.
type Keep struct {
	Count int           // the newest segments with packets; 0: no limit
	Bytes Size          // space of all segments, those that have no packets yet too; 0: no limit
	Age   time.Duration // since a segment is complete; 0: no limit
}

// String formats the limits as in a configuration.
func (k Keep) String() string {
	var limits []string
	if k.Count != 0 {
		limits = append(limits, strconv.Itoa(k.Count))
	}
	if k.Bytes != 0 {
		limits = append(limits, k.Bytes.String())
	}
	if k.Age != 0 {
		limits = append(limits, k.Age.String())
	}
	if len(limits) == 1 {
		return limits[0]
	}
	return "[" + strings.Join(limits, ", ") + "]"
}

// Space returns the most that segments of a size take on the disk: those that are kept, and the prepared one. It is 0 if
// there is no limit.
func (k Keep) Space(segment Size) Size {
	most := k.Bytes
	if k.Count != 0 {
		if n := Size(k.Count) + 1; n <= ^Size(0)/max(segment, 1) && (most == 0 || n*segment < most) {
			most = n * segment
		}
	}
	return most
}

// readKeep reads one limit or a list of limits.
func readKeep(d *decoder, f *Flow, _ any) read {
	return func(path string, n *yaml.Node) {
		keep := &f.To.Segment.Keep
		if v, ok := d.value(path, n); !ok || v.Kind != yaml.SequenceNode {
			set(d, keep, parseKeep)(path, n)
			return
		}
		d.list(path, n, func(path string, n *yaml.Node) {
			var one Keep
			set(d, &one, parseKeep)(path, n)
			if err := keep.join(one); err != nil {
				d.reject(path, err)
			}
		})
	}
}

// join adds a limit of another kind.
func (k *Keep) join(one Keep) error {
	switch {
	case one.Count != 0 && k.Count != 0, one.Bytes != 0 && k.Bytes != 0, one.Age != 0 && k.Age != 0:
		return fmt.Errorf("%s and %s limit the same: give a number of segments, a size and a time once each", k, one)
	}
	k.Count, k.Bytes, k.Age = k.Count+one.Count, k.Bytes+one.Bytes, k.Age+one.Age
	return nil
}

// parseKeep parses one limit: a number of segments, a size or a time.
func parseKeep(s string) (k Keep, err error) {
	if k.Count, err = parseInt(s); err == nil {
		return k, nil
	}
	if days, is := strings.CutSuffix(s, "d"); is {
		if n, err := parseInt(days); err == nil && within(n, 1, maxDays) {
			return Keep{Age: time.Duration(n) * 24 * time.Hour}, nil
		}
	}
	if k.Age, err = parseDuration(s); err == nil {
		return k, nil
	}
	if k.Bytes, err = parseSome(s); err == nil {
		return k, nil
	}
	return Keep{}, wrong("write 24, 24GiB or 7d", "%s is not a number of segments, a size or a time", quote(s))
}

// maxDays keeps a time within what a Duration can hold.
const maxDays = 100 * 365

// keep checks how much of a recording stays.
func (v *validator) keep(path string, s *Segment) {
	k := s.Keep
	v.check(k.Count >= 0, path, "%d is negative; 0 means all", k.Count)
	v.check(k.Age == 0 || k.Age >= time.Second, path, "%s is less than 1s", k.Age)
	if least := leastSegments * s.Size; k.Bytes != 0 && s.Size <= maxSegment && k.Bytes < least {
		v.refuse(path, wrong(fmt.Sprintf("keep %s or more, or lower segment.size", least),
			"%s are less than three segments: one is prepared, one is written, and one is complete", k.Bytes))
	}
}

// leastSegments is how many segments a size to keep must have room for.
const leastSegments = 3
