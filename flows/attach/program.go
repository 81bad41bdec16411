package attach

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// add makes an end known.
func (p *Program) add(e *End) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.ends {
		if other.config.Flow == e.config.Flow && other.config.Role == e.config.Role {
			return fmt.Errorf("flow %s has an end for program %s already", e.config.Flow, p.name)
		}
	}
	p.ends = append(p.ends, e)
	return nil
}

// remove forgets an end, and closes its port.
func (p *Program) remove(e *End) error {
	p.mu.Lock()
	e.closed = true
	p.ends = slices.DeleteFunc(p.ends, func(other *End) bool { return other == e })
	s := p.session
	number, open := uint32(0), false
	for n, of := range p.ports {
		if of == e {
			number, open = n, true
		}
	}
	p.mu.Unlock()
	if !open {
		return nil
	}
	return s.closePort(number, &wire.Refusal{Reason: wire.Closing, Text: "flow " + e.config.Flow + " ends"})
}

// Shut closes the end's port if one is open, and tells the program why. Another one may open afterwards. It may be
// called from any goroutine but the worker's.
func (e *End) Shut(why string) error {
	p := e.program
	p.mu.Lock()
	s := p.session
	number, open := uint32(0), false
	for n, of := range p.ports {
		if of == e {
			number, open = n, true
		}
	}
	p.mu.Unlock()
	if !open || s == nil {
		return nil
	}
	return s.closePort(number, &wire.Refusal{Reason: wire.Closing, Text: why})
}

// find returns the end of a flow for a role at which ports may open, or nil.
func (p *Program) find(flow string, role wire.Role) *End {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.ends {
		if e.begun && e.config.Flow == flow && e.config.Role == role {
			return e
		}
	}
	return nil
}

// attach makes a session the program's, unless there is one. It waits a moment for one that ends.
func (p *Program) attach(s *session) bool {
	for end := time.Now().Add(endTime); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		before := p.session
		if before == nil {
			p.session = s
			p.count.Attaches++
		}
		p.mu.Unlock()
		if before == nil {
			return true
		}
		if !before.ending() || time.Now().After(end) {
			return false
		}
	}
}

// endTime is how long the end of a session may take.
const endTime = time.Second

// detach makes the name free.
func (p *Program) detach(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == s {
		p.session = nil
	}
}

// ended counts an end or a refusal.
func (p *Program) ended(why wire.Reason) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.Ended[why]++
}

func (p *Program) stats() ProgramStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.count
	c.Name, c.Ended = p.name, maps.Clone(c.Ended)
	if p.session != nil {
		c.Attached, c.PID = true, p.session.pid
	}
	if p.slice.In != nil {
		c.In = p.slice.In.Size()
	}
	if p.slice.Out != nil {
		c.Out = p.slice.Out.Size()
	}
	return c
}
