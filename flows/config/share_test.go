package config

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// flowsOfKinds are flows by what they need: nothing, frames, extents, and exact numbers.
var flowsOfKinds = []string{
	"from: {generate: 64}, to: {discard: true}",
	"from: {interface: eth%d}, to: {file: /tmp/%[1]d}",
	"from: {generate: 64}, to: {file: /tmp/%d}",
	"from: {rdma: mlx5_0, listen: ':%d'}, to: {discard: true}",
	"from: {rdma: mlx5_0, listen: ':%d', message: 64KiB, clients: 3}, to: {file: /tmp/%[1]d}",
	"from: {rdma: mlx5_0, listen: ':%d', message: 64KiB, clients: 2}, to: {rdma: mlx5_0, peers: [{name: p, address: 'h:1', flow: f}]}",
	"from: {file: /tmp/image%d}, to: {rdma: mlx5_0, listen: ':%[1]d', clients: 2}",
}

// TestShares: whatever flows a configuration has that is valid, each has what it needs as its share of a region, and
// together the shares are not more than the region has.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		text.WriteString("region: {size: 1GiB}\nflows:\n")
		for i, kind := range rapid.SliceOfN(rapid.IntRange(0, len(flowsOfKinds)-1), 1, 30).Draw(t, "kinds") {
			flow := flowsOfKinds[kind]
			if strings.Contains(flow, "%d") {
				flow = fmt.Sprintf(flow, 1000+i)
			}
			fmt.Fprintf(&text, "  - {name: f%d, %s}\n", i, flow)
		}
		c, err := Parse("x.yaml", []byte(text.String()), Options{})
		if err != nil {
			t.Fatal(err)
		}
		all, exact := c.needs()
		frames, extents := rapid.IntRange(all.Frames, all.Frames+100000).Draw(t, "frames"), rapid.IntRange(c.Region.Extents, c.Region.Extents+100).Draw(t, "extents")
		usedFrames, usedExtents := exact.Frames, exact.Extents
		for i := range c.Flows {
			f := &c.Flows[i]
			n := f.Needs(&c.Region)
			haveFrames, haveExtents := c.Share(f, frames, extents)
			if haveFrames < n.Frames-n.Own || haveExtents < n.Extents {
				t.Errorf("%s needs %+v, and has %d frames and %d extents", f.Name, n, haveFrames, haveExtents)
			}
			if !n.Exact {
				usedFrames, usedExtents = usedFrames+haveFrames, usedExtents+haveExtents
			}
		}
		if usedFrames > frames || usedExtents > extents {
			t.Errorf("of %d frames and %d extents flows have %d and %d", frames, extents, usedFrames, usedExtents)
		}
	})
}
