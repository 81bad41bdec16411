package manager

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// Config says how a manager works. The zero value of each field stands for a default. Times are numbers of 5 bits, each 4.096 µs << it.
type Config struct {
	// Connections is the most there can be at once, those on their way among them; default 1024.
	Connections int
	// Response is how long we may take to answer a message, and what peers are expected to take beyond the way; default 19, which is 2.1 s.
	Response uint8
	// Lifetime is how long a packet may be under way; default 16, which is 0.27 s, as the kernel has it for RoCE.
	Lifetime uint8
	// Retries is how often a message is said again before a peer is given up, at most 15; default 15.
	Retries uint8
	// Service is how long a peer is asked to wait while a program makes up its mind; default 22, which is 17 s.
	Service uint8
}

func (c *Config) setDefaults() {
	if c.Connections == 0 {
		c.Connections = 1024
	}
	for _, f := range []struct {
		of *uint8
		to uint8
	}{{&c.Response, 19}, {&c.Lifetime, 16}, {&c.Retries, 15}, {&c.Service, 22}} {
		if *f.of == 0 {
			*f.of = f.to
		}
	}
}

func (c *Config) check() error {
	switch {
	case c.Connections < 1 || c.Connections > 1<<16:
		return fmt.Errorf("%d connections: it can have 1 to %d", c.Connections, 1<<16)
	case c.Response > 31 || c.Lifetime > 30 || c.Service > 31:
		return fmt.Errorf("times %d, %d and %d: they are at most 31, 30 and 31", c.Response, c.Lifetime, c.Service)
	case c.Retries > 15:
		return fmt.Errorf("%d retries: at most 15", c.Retries)
	}
	return nil
}

// longest bounds what a peer can have us wait for it with one message: 68 s, as long as the kernel asks peers to.
const longest = 24

// patience is how long an answer may take that the peer says takes so long.
func (c *Config) patience(response uint8) instant {
	return instant(mad.Duration(min(response, longest)) + 2*mad.Duration(c.Lifetime))
}
