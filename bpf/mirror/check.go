package mirror

import (
	"fmt"
	"net"
)

// Check returns the interface's present name and whether it is up. Errors match ErrGone, or ErrDetached when
// packets should be copied and are not.
func (m *Mirror) Check() (name string, up bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return m.name, false, fmt.Errorf("mirror of %s: %w", m.name, net.ErrClosed)
	}
	l, err := m.handle.LinkByIndex(m.index)
	if err != nil {
		return m.name, false, fmt.Errorf("mirror of %s: %w", m.name, linkError(err))
	}
	a := l.Attrs()
	if err := m.checkAttached(); err != nil {
		return a.Name, false, fmt.Errorf("mirror of %s: %w", a.Name, err)
	}
	return a.Name, a.Flags&net.FlagUp != 0, nil
}

// checkAttached checks that the programs are where Start put them. m.mu is held.
func (m *Mirror) checkAttached() error {
	if m.attached == nil {
		return nil
	}
	if m.filters {
		return m.checkFilters()
	}
	for _, l := range m.links {
		info, err := l.Info()
		if err != nil {
			return fmt.Errorf("ask for the program: %w", err)
		}
		if tcx := info.TCX(); tcx != nil && tcx.Ifindex != uint32(m.index) {
			return errDetached
		}
	}
	return nil
}

func (m *Mirror) checkFilters() error {
	ours, _, err := filters(m.handle, m.index)
	if err != nil {
		return err
	}
	there := 0
	for _, f := range ours {
		if f.number == m.slot.number {
			there++
		}
	}
	if there < len(m.directions) {
		return errDetached
	}
	return nil
}
