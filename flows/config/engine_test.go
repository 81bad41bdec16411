package config

import (
	"strings"
	"testing"
)

// TestChosenEngine: auto takes packets from the host only where that is permitted or a setting needs it, and says
// why.
func TestChosenEngine(t *testing.T) {
	for text, want := range map[string]struct {
		engine Engine
		why    string
	}{
		"{interface: e0}":                                          {EngineXDP, ""},
		"{interface: e0, engine: packet}":                          {EnginePacket, ""},
		"{interface: e0, engine: auto}":                            {EnginePacket, "take_over is not set"},
		"{interface: e0, mirror: both}":                            {EnginePacket, "mirror is set"},
		"{interface: e0, mirror: both, ring: 1024}":                {EngineXDP, "ring is set"},
		"{interface: e0, engine: xdp, mirror: both}":               {EngineXDP, ""},
		"{interface: e0, engine: auto, fanout: a}":                 {EnginePacket, "fanout is set"},
		"{interface: e0, engine: auto, mirror: both}":              {EnginePacket, "mirror is set"},
		"{interface: e0, engine: auto, take_over: true}":           {EngineAuto, "take_over is set"},
		"{interface: e0, engine: auto, queues: [1]}":               {EngineXDP, "queues is set"},
		"{interfaces: [e0, e1], engine: auto}":                     {EngineXDP, "interfaces is set"},
		"{interface: e0, engine: auto, timestamps: hardware}":      {EnginePacket, "take_over is not set"},
		"{interface: e0, engine: auto, filter: [{name: a}]}":       {EngineXDP, "rules is set"},
		"{interface: e0, engine: packet, mirror: egress}":          {EnginePacket, ""},
		"{interface: e0, engine: packet, filter: udp or (vlan 5)}": {EnginePacket, ""},
	} {
		c := parsed(t, "flows: [{name: f, from: "+text+", to: {file: /f}}]")
		f := &c.Flows[0]
		if e, why := f.ChosenEngine(); e != want.engine || !strings.Contains(why, want.why) || want.why == "" != (why == "") {
			t.Errorf("%s: %s since %q", text, e, why)
		}
		if has := f.From.Buffer != 0; has != (f.From.Engine != EngineXDP) || has && f.From.Buffer != DefaultBuffer {
			t.Errorf("%s: a buffer of %s", text, f.From.Buffer)
		}
	}
}
