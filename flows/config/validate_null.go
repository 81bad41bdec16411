package config

// Bounds of packets that are generated: an Ethernet frame has 60 bytes at least, its
// checksum not counted.
const (
	minGenerated = 60
	maxRate      = 1_000_000_000
)

// generated checks packets that a flow makes itself. They land where those of an
// interface do, one in a frame.
func (v *validator) generated(path string, f *From) {
	longest := Size(v.Region.Frame) - min(Size(v.Region.Frame), MessageOverhead)
	v.check(f.Generate >= minGenerated && f.Generate <= longest || v.explained("region.frame"), join(path, "generate"),
		"%d is not from %d to %d, which frames of %d have room for", f.Generate, minGenerated, longest, v.Region.Frame)
	v.check(within(f.Rate, 0, maxRate), join(path, "rate"), "%d is not from 0 to %d packets a second; 0 means as many as are taken", f.Rate, maxRate)
}
