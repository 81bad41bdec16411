package config

import "time"

// DefaultSocket is the control socket's default path.
const DefaultSocket = "/run/unifiedd/control.sock"

// segmentUnit is what segment sizes are rounded up to: enough for direct I/O on
// any disk with blocks of up to 4096 bytes.
const segmentUnit = 4 * KiB

// Default returns what an empty file would mean, were it not for the missing
// flows.
func Default() *Config {
	return &Config{
		Region: Region{
			Size:    256 * MiB,
			Pages:   Pages2MiB,
			Frame:   4096,
			Extent:  MiB,
			Extents: 16,
		},
		Workers: []Worker{NewWorker("main")},
		Log:     Log{Level: LevelInfo, Format: FormatText},
		Control: Control{Socket: DefaultSocket},
	}
}

// NewWorker returns a worker with the defaults.
func NewWorker(name string) Worker {
	return Worker{Name: name, Wait: WaitSleep, Sleep: 200 * time.Microsecond}
}

// NewFlow returns a flow with the defaults; interface and destination, which
// have none, are left to the caller. [Config.Complete] settles the rest.
func NewFlow(name string) Flow {
	return Flow{
		Name: name,
		From: From{ZeroCopy: ZeroCopyPrefer, Timestamps: TimestampsSoftware, Ring: 4096, Promiscuous: true},
		To: To{
			Layout:  LayoutPacked,
			Segment: Segment{Size: GiB},
			Flush:   500 * time.Millisecond,
			Durable: time.Second,
		},
	}
}

// Complete fills in the defaults which depend on other settings and rounds sizes
// up to what they are made of. It may be called again at any time. [Load] and
// [Parse] have called it.
func (c *Config) Complete() {
	c.Region.Size = c.Region.Size.roundUp(c.Region.Pages.Bytes())
	for i := range c.Flows {
		f := &c.Flows[i]
		if f.Worker == "" && len(c.Workers) == 1 {
			f.Worker = c.Workers[0].Name
		}
		f.To.complete()
	}
}

func (t *To) complete() {
	t.Segment.Size = t.Segment.Size.roundUp(segmentUnit)
	if t.Prepare == "" {
		t.Prepare = defaultPrepare(t)
	}
}

// defaultPrepare: a device is written as it is; slots are written fast only
// where something was written before.
func defaultPrepare(t *To) Prepare {
	switch {
	case t.Device != "":
		return PrepareNone
	case t.Layout == LayoutSlot:
		return PrepareZero
	}
	return PrepareAllocate
}
