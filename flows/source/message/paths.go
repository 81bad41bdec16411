package message

import (
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
)

// Further returns the further devices with a class, in order.
func (s *Source) Further(c config.Class) (all []*stream.Endpoint) {
	for _, d := range s.further {
		all = append(all, d.In(c))
	}
	return all
}

// checkDevices returns the condition of the devices. Of several, one may be without a link: clients then come over the
// others. A device that has failed permanently ends the flow, as the only one would.
func (s *Source) checkDevices() (waits, ends error) {
	return device.CheckAny(append([]*device.RDMA{s.device}, s.further...))
}

// handshakes returns the number of failed handshakes by reason, over all devices.
func (s *Source) handshakes() map[string]uint64 {
	return device.Handshakes(s.listeners...)
}

// paths returns the status of the devices, if there are several.
func (s *Source) paths() (all []status.ListenPath) {
	if len(s.further) == 0 {
		return nil
	}
	for i, d := range append([]*device.RDMA{s.device}, s.further...) {
		st := s.receiver.StatsAt(i)
		all = append(all, status.ListenPath{Device: d.Name, Listen: s.listeners[i].Addr().String(), Connected: st.Connected, Broken: st.Failed, Messages: st.Messages, Early: st.Early})
	}
	return all
}
