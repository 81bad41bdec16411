package packet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
)

// ErrNoCardClock is matched if the times of the card's clock are required and not available.
var ErrNoCardClock = errors.New("no times of the card's clock")

// cardClock is what a socket has of the clock of its card.
type cardClock struct {
	on  bool
	ptp int    // N in /dev/ptpN; -1: the driver does not say
	why string // not on, if it is preferred
	old *unix.HwTstampConfig
}

// useCardClock makes packets carry the times of the card's clock, if the flow wants that. The kernel says for each
// packet which clock its time is of.
func (s *Source) useCardClock() error {
	if s.from.Timestamps != config.TimestampsHardware && s.from.Timestamps != config.TimestampsPrefer {
		return nil
	}
	err := s.socket.stampByCard()
	if err == nil {
		return nil
	}
	if s.from.Timestamps == config.TimestampsHardware {
		return fmt.Errorf("%w on %s: %w (set timestamps to prefer or software)", ErrNoCardClock, s.socket.name, err)
	}
	s.socket.clock.why = err.Error()
	return nil
}

// Ways in which a card stamps packets, and gives the times to sockets.
const stampsByCard = unix.SOF_TIMESTAMPING_RX_HARDWARE | unix.SOF_TIMESTAMPING_RAW_HARDWARE

// stampByCard makes the card stamp every packet that it receives, until close, and the kernel use those times.
func (s *socket) stampByCard() error {
	info, err := unix.IoctlGetEthtoolTsInfo(s.fd, s.name)
	if err != nil {
		return fmt.Errorf("ask the driver for times of the card's clock: %w", err)
	}
	if info.So_timestamping&stampsByCard != stampsByCard {
		return errors.New("the driver has no times of the card's clock for packets that arrive")
	}
	if err := s.stampAll(); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_TIMESTAMP, unix.SOF_TIMESTAMPING_RAW_HARDWARE); err != nil {
		return fmt.Errorf("have the times of the card's clock: %w", err)
	}
	s.clock.on, s.clock.ptp = true, int(info.Phc_index)
	return nil
}

// stampAll makes the card stamp every packet, unless it does already. Drivers that stamp only packets of the
// Precision Time Protocol go on with that.
func (s *socket) stampAll() error {
	old, err := unix.IoctlGetHwTstamp(s.fd, s.name)
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && old.Rx_filter == unix.HWTSTAMP_FILTER_ALL {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask how the card stamps packets: %w", err)
	}
	all := *old
	all.Rx_filter = unix.HWTSTAMP_FILTER_ALL
	switch err := unix.IoctlSetHwTstamp(s.fd, s.name, &all); {
	case err == nil:
		s.clock.old = old
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("have the card stamp every packet: %w (grant CAP_NET_ADMIN, or switch it on before: hwstamp_ctl -i %s -r 1)", err, s.name)
	case !errors.Is(err, unix.ERANGE) && !errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("have the card stamp every packet: %w", err)
	}
	return nil
}

// restoreStamping undoes stampAll. name is the interface's present name. An interface that is gone needs nothing.
func (s *socket) restoreStamping(name string) error {
	if s.clock.old == nil {
		return nil
	}
	old := s.clock.old
	s.clock.old = nil
	if err := unix.IoctlSetHwTstamp(s.fd, name, old); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("have the card of %s stamp packets as before: %w", name, err)
	}
	return nil
}

// describeClock describes the card's clock for the head of a capture.
func (s *socket) describeClock() string {
	which := "its driver does not say which"
	if s.clock.ptp >= 0 {
		which = fmt.Sprintf("/dev/ptp%d", s.clock.ptp)
	}
	return fmt.Sprintf("Times are of the clock of %s (%s) as it was, not converted: what they count from depends on who set it, often TAI, ahead of UTC by leap seconds. "+
		"Packets that the card has no time for are in the interface before, with times of the system's clock.", s.name, which)
}
