package main

import (
	"errors"
	"strings"

	"github.com/unifiedd/unifiedd/flows/config"
)

// captureSettings and replaySettings map the settings of a command's flow to the flags that set them.
var (
	captureSettings = map[string]string{
		"from.interface": "-i", "from.interfaces": "-i", "from.filter": "", "from.queues": "--queues", "from.ring": "--ring", "from.steer": "--steer",
		"from.beside": "--beside", "from.priority": "--priority", "from.mirror": "-Q", "from.engine": "--engine", "from.buffer": "--buffer-size", "from.zero_copy": "--zero-copy", "from.comment": "--ifcomment", "from.join": "--join",
		"to.file": "-w", "to.snaplen": "-s", "to.mode": "--mode", "to.keep_free": "--keep-free", "to.layout": "--layout", "to.comment": "--capture-comment",
	}
	replaySettings = map[string]string{
		"to.interface": "-i", "to.pace": "--multiplier, --pps or --mbps", "from.files": "FILE", "from.loop": "--loop", "from.filter": "--filter",
		"to.ring": "--ring", "to.zero_copy": "--zero-copy", "to.spin": "--spin", "to.late": "--late", "to.max_gap": "--maxsleep",
	}
)

// byFlag returns a configuration error that names the user's flags instead of the settings of the
// first flow. It returns other errors unchanged.
func byFlag(err error, flags map[string]string) error {
	all, ok := errors.AsType[*config.Errors](err)
	if !ok {
		return err
	}
	named := &config.Errors{}
	for _, p := range all.Problems {
		if path, message, found := strings.Cut(p.Message, ": "); found {
			setting, _, _ := strings.Cut(strings.TrimPrefix(path, "flows[0]."), "[")
			switch flag, known := flags[setting]; {
			case known && flag == "":
				p.Message = message
			case known:
				p.Message = flag + ": " + message
			}
		}
		named.Problems = append(named.Problems, p)
	}
	return named
}
