package config

// ChannelFlow returns the flow that passes a channel on to peers, or gets it from one; nil: none does.
func (c *Config) ChannelFlow(name string) *Flow {
	for i := range c.Flows {
		if f := &c.Flows[i]; name != "" && (f.From.Channel == name || f.To.Channel == name) {
			return f
		}
	}
	return nil
}

// Channel returns the channel with a name, or nil.
func (c *Config) Channel(name string) *Channel {
	for i := range c.Attach.Channels {
		if c.Attach.Channels[i].Name == name {
			return &c.Attach.Channels[i]
		}
	}
	return nil
}

// writer checks who writes a channel: a program or a flow.
func (v *validator) writer(at string, c *Channel) {
	f := v.ChannelFlow(c.Name)
	switch {
	case c.Writer != "" || v.explained(join(at, "writer")):
		v.known(join(at, "writer"), c.Writer)
	case f == nil || f.To.Channel != c.Name:
		v.refuse(v.first(join(at, "writer"), at), wrong("say writer:, the name of a program in attach.programs, or say to: {channel: "+c.Name+"} in a flow", "nothing writes the channel"))
	}
}

// readersOf checks how many readers a channel has, peers included, and their names.
func (v *validator) readersOf(path string, c *Channel) {
	least, peers := 1, 0
	if f := v.ChannelFlow(c.Name); f != nil && f.From.Channel == c.Name {
		least, peers = 0, len(f.To.Peers)
	}
	n := len(c.Readers)
	v.check(n >= least && n+peers <= maxReaders, v.first(path, parent(path)), "%d readers are listed%s; %d to %d are possible", n, andPeers(peers), least, maxReaders-peers)
}

func andPeers(n int) string {
	if n == 0 {
		return ""
	}
	return " beside the peers of its flow"
}

// knownChannel refuses a name that no channel has.
func (v *validator) knownChannel(path, name string) *Channel {
	if !v.need(path, name, "the name of a channel in attach.channels") {
		return nil
	}
	if c := v.Config.Channel(name); c != nil {
		return c
	}
	names := make([]string, len(v.Attach.Channels))
	for i := range v.Attach.Channels {
		names[i] = v.Attach.Channels[i].Name
	}
	hint := "add it there"
	if meant, ok := suggest(name, names); ok {
		hint = didYouMean(meant)
	}
	v.refuse(path, wrong(hint, "there is no channel %s in attach.channels", quote(name)))
	return nil
}

// takesChannel checks the source of a flow that passes a channel on.
func (v *validator) takesChannel(path string, f *From) {
	at := join(path, "channel")
	if c := v.knownChannel(at, f.Channel); c != nil && c.Writer == "" {
		v.refuse(at, wrong("say writer: in attach.channels", "no program writes the channel, and only what a program of this machine writes can be passed on"))
	}
}

// givesChannel checks the sink of a flow that gets a channel from a peer.
func (v *validator) givesChannel(path string, t *To) {
	at := join(path, "channel")
	if c := v.knownChannel(at, t.Channel); c != nil && c.Writer != "" {
		v.refuse(at, wrong("remove writer: in attach.channels, or give the flow a channel of its own", "program %s writes the channel, and a channel has one writer", quote(c.Writer)))
	}
}

// channelListener checks the source of a flow that gets a channel from a peer.
func (v *validator) channelListener(path string, f *Flow) {
	v.clientListener(path, clientListener{f.From.RDMA, f.From.Listen, 1, 1, f.From.Allow})
	v.clientPaths(path, f)
}

// channelPeers checks the peers to which a flow passes a channel on. They are readers of the channel.
func (v *validator) channelPeers(path string, f *Flow) {
	t, all := &f.To, join(path, "peers")
	v.rdma(join(path, "rdma"), t.RDMA)
	v.check(len(t.Peers) > 0, all, "at least one peer is needed")
	v.check(len(t.Peers) <= maxPeers, all, "%d peers are too many; at most %d are possible", len(t.Peers), maxPeers)
	names, places, named := newTaken[string](v, "peer"), newTaken[string](v, "address"), newTaken[string](v, "peer")
	for i, p := range t.Peers {
		at := index(all, i)
		v.peer(at, p)
		named.take(join(at, "peer"), p.Peer)
		names.take(join(at, "name"), p.Name)
		places.take(join(at, "address"), p.Address)
		v.checkErr(join(at, "policy"), member(p.Policy, channelPolicies))
		v.peerPaths(at, t, p)
		if p.Paths != nil && p.PathMode == PathActive && len(t.Peers) == 1 {
			v.refuse(join(at, "path_mode"), wrong("say standby, and give another channel another first path", "a channel uses one path to each peer: active spreads several peers over the paths, and it has one"))
		}
		v.check(len(p.Others) == 0, join(at, "others"), "a channel goes to one machine: a group keeps logs")
		v.otherReader(join(at, "name"), f.From.Channel, p.Name)
	}
}

// otherReader refuses a peer with the name of a program that reads the channel: metrics could not tell them apart.
func (v *validator) otherReader(path, channel, peer string) {
	c := v.Config.Channel(channel)
	if c == nil {
		return
	}
	for _, r := range c.Readers {
		v.check(r.Program != peer, path, "program %s reads the channel: give the peer another name", quote(peer))
	}
}
