package config

import (
	"fmt"
	"time"
)

// flowDocument returns a flow as its keys and values. It omits settings that are zero and have no
// meaning for the flow's kind.
func flowDocument(f *Flow) map[string]any {
	doc := map[string]any{"name": f.Name, "worker": f.Worker, "from": fromDocument(f), "to": toDocument(f)}
	if f.Kind() == KindWitness {
		delete(doc, "from")
	}
	if f.Stages != nil {
		doc["stages"] = stageDocuments(f.Stages)
	}
	if f.Watermarks.High > 0 {
		doc["watermarks"] = map[string]any{"high": f.Watermarks.High, "low": f.Watermarks.Low}
	}
	return doc
}

func fromDocument(f *Flow) map[string]any {
	from := &f.From
	switch f.Kind() {
	case KindStorageRDMA, KindStorageNVMe, KindStorageAttach, KindStorageState:
		return map[string]any{"file": from.File}
	case KindChannelRDMA:
		return map[string]any{"channel": from.Channel}
	case KindRDMAChannel:
		doc := map[string]any{"rdma": from.RDMA, "listen": from.Listen, "allow_any_gid": from.AllowAnyGID}
		if from.Paths != nil {
			doc["paths"] = pathsDocument("listen", from.Paths)
		}
		return allowDocument(from.Allow, doc)
	case KindStorageNetwork:
		doc := map[string]any{"file": from.File, "loop": from.Loop, "filter": from.Filter}
		if from.Files != nil {
			delete(doc, "file")
			doc["files"] = from.Files
		}
		if from.Loop == Endless {
			doc["loop"] = "endless"
		}
		return doc
	case KindAttachRDMA:
		return map[string]any{"attach": from.Attach, "message": from.Message.String(), "window": from.Window, "trusted": from.Trusted}
	case KindAttachStorage, KindAttachNull, KindAttachState, KindAttachOrder:
		return map[string]any{"attach": from.Attach, "message": from.Message.String(), "window": from.Window}
	case KindNullStorage, KindNullRDMA, KindNullNull, KindNullAttach:
		return map[string]any{"generate": from.Generate.String(), "rate": from.Rate}
	case KindRDMAStorage, KindRDMARDMA, KindRDMANull, KindRDMAAttach, KindRDMAState:
		doc := allowDocument(from.Allow, map[string]any{
			"rdma": from.RDMA, "listen": from.Listen, "message": from.Message.String(),
			"window": from.Window, "clients": from.Clients, "verify": from.Verify, "method": string(from.Method), "allow_any_gid": from.AllowAnyGID,
		})
		if from.Paths != nil {
			doc["paths"] = pathsDocument("listen", from.Paths)
		}
		return doc
	}
	doc := map[string]any{
		"interface": from.Interface, "zero_copy": string(from.ZeroCopy), "timestamps": string(from.Timestamps), "filter": from.Filter,
		"ring": from.Ring, "busy_poll": from.BusyPoll.String(), "take_over": from.TakeOver, "promiscuous": from.Promiscuous, "queues": "all",
	}
	if from.Interfaces != nil {
		delete(doc, "interface")
		doc["interfaces"] = interfacesDocument(from)
	}
	if from.Comment != "" {
		doc["comment"] = from.Comment
	}
	if from.Engine != "" {
		doc["engine"] = string(from.Engine)
	}
	if from.Buffer != 0 {
		doc["buffer"] = from.Buffer.String()
	}
	if from.Fanout != "" {
		doc["fanout"] = from.Fanout
	}
	if from.Queues != nil {
		doc["queues"] = from.Queues
	}
	if from.Steer != "" {
		doc["steer"] = string(from.Steer)
	}
	if from.Beside != "" {
		doc["beside"], doc["priority"] = string(from.Beside), from.Priority
	}
	if from.Mirror != "" {
		doc["mirror"] = string(from.Mirror)
	}
	if from.Join != nil {
		doc["join"] = joinDocument(from.Join)
	}
	return doc
}

func allowDocument(names []string, doc map[string]any) map[string]any {
	if names != nil {
		doc["allow"] = names
	}
	return doc
}

func interfacesDocument(from *From) (all []any) {
	for i, name := range from.Interfaces {
		if from.Comments == nil {
			all = append(all, name)
			continue
		}
		all = append(all, map[string]any{"name": name, "comment": from.Comments[i]})
	}
	return all
}

func joinDocument(joins []Join) (all []any) {
	for _, j := range joins {
		if j.Source.IsValid() {
			all = append(all, map[string]any{"group": j.Group.String(), "source": j.Source.String(), "interface": j.Interface})
			continue
		}
		all = append(all, j.Group.String())
	}
	return all
}

func groupDocument(g *Replicas) map[string]any {
	var members []any
	for _, r := range g.Members {
		m := map[string]any{"name": r.Name, "address": r.Address, "witness": r.Witness, "joins": r.Joins}
		if r.Clients != "" {
			m["clients"] = r.Clients
		}
		if r.Number > 0 {
			m["number"] = r.Number
		}
		members = append(members, m)
	}
	return map[string]any{"name": g.Name, "self": g.Self, "heartbeat": g.Heartbeat.String(), "suspect": g.Suspect.String(), "lag": g.Lag.String(), "members": members}
}

func toDocument(f *Flow) map[string]any {
	to := &f.To
	switch f.Kind() {
	case KindWitness:
		return map[string]any{"file": to.File, "group": groupDocument(to.Replicas)}
	case KindRDMAChannel:
		return map[string]any{"channel": to.Channel}
	case KindChannelRDMA:
		p := to.Peers[0]
		m := map[string]any{"name": p.Name, "address": p.Address, "flow": p.Flow, "policy": string(p.Policy)}
		if p.Paths != nil {
			m["paths"], m["path_mode"] = pathsDocument("address", p.Paths), string(p.PathMode)
		}
		return map[string]any{"rdma": to.RDMA, "peers": []any{m}}
	case KindStorageRDMA:
		doc := map[string]any{
			"rdma": to.RDMA, "listen": to.Listen, "cache": to.Cache.String(), "transfer": to.Transfer.String(),
			"window": to.Window, "clients": to.Clients, "allow_any_gid": to.AllowAnyGID,
		}
		if to.CacheIndex != "" {
			doc["cache_index"] = to.CacheIndex
		}
		return allowDocument(to.Allow, doc)
	case KindStorageNVMe:
		doc := map[string]any{"rdma": to.RDMA, "listen": to.Listen, "subsystem": to.Subsystem, "window": to.Window, "clients": to.Clients, "read_only": to.ReadOnly, "allow_any_host": to.AllowAnyHost, "ana": string(to.ANA), "controllers": to.Controllers.String()}
		if to.Hosts != nil {
			doc["hosts"] = to.Hosts
		}
		if to.Keys != "" {
			doc["keys"], doc["group"] = to.Keys, string(to.Group)
		}
		if to.Reservations != "" {
			doc["reservations"] = to.Reservations
		}
		return doc
	case KindStorageNetwork:
		return map[string]any{
			"interface": to.Interface, "zero_copy": string(to.ZeroCopy), "ring": to.Ring, "pace": to.Pace.String(),
			"spin": to.Spin.String(), "late": to.Late.String(), "max_gap": to.MaxGap.String(),
		}
	case KindStorageAttach:
		return map[string]any{"attach": to.Attach, "queue": to.Queue}
	case KindAttachOrder, KindNetworkOrder:
		return map[string]any{"order": orderDocument(to.Order)}
	case KindAttachState, KindRDMAState, KindStorageState:
		return map[string]any{"state": to.State}
	case KindNetworkAttach:
		return map[string]any{"attach": to.Attach, "queue": to.Queue, "policy": string(to.Policy), "place": string(to.Place), "expose": to.Expose}
	case KindRDMAAttach, KindNullAttach:
		return map[string]any{"attach": to.Attach, "queue": to.Queue, "policy": string(to.Policy)}
	case KindNetworkRDMA, KindRDMARDMA, KindNullRDMA, KindAttachRDMA:
		return peersDocument(to)
	case KindNetworkNull, KindRDMANull, KindNullNull, KindAttachNull:
		return map[string]any{"discard": to.Discard}
	}
	doc := map[string]any{
		"file": to.File, "layout": string(to.Layout), "flush": to.Flush.String(), "durable": durableText(to.Durable),
		"segment": map[string]any{"size": to.Segment.Size.String(), "keep": to.Segment.Keep},
	}
	if to.Acknowledge != "" {
		doc["acknowledge"] = string(to.Acknowledge)
	}
	if to.Snaplen > 0 {
		doc["snaplen"] = to.Snaplen.String()
	}
	if to.Mode != 0 {
		doc["mode"] = fmt.Sprintf("%04o", to.Mode)
	}
	if to.Owner != "" {
		doc["owner"] = to.Owner
	}
	if to.Comment != "" {
		doc["comment"] = to.Comment
	}
	doc["keep_free"] = to.KeepFree.String()
	return doc
}

func orderDocument(o *Order) map[string]any {
	limits := map[string]any{"rate": o.Limits.Rate, "size": o.Limits.Size.String()}
	if o.Limits.Rate > 0 {
		limits["burst"] = o.Limits.Burst
	}
	if b := o.Limits.Price; b != nil {
		price := map[string]any{"offset": b.Offset, "bits": b.Bits, "min": b.Min, "max": b.Max}
		if b.Is != "" {
			price["at"], price["is"] = b.At, b.Is
		}
		limits["price"] = price
	}
	doc := map[string]any{
		"connect": o.Connect, "interface": o.Interface, "queue": o.Queue, "zero_copy": string(o.ZeroCopy), "ring": o.Ring, "replies": o.Replies, "send_times": o.SendTimes, "retry": o.Retry.String(), "limits": limits,
	}
	rulesDocument(o, doc)
	return doc
}

func durableText(d time.Duration) string {
	if d == GroupCommit {
		return "0s"
	}
	return d.String()
}

func peersDocument(to *To) map[string]any {
	doc := map[string]any{"rdma": to.RDMA, "choose": string(to.Choose), "queue": to.Queue, "method": string(to.Method), "participant": to.Participant, "durability": string(to.Durability)}
	if to.Acknowledge != "" {
		doc["acknowledge"] = string(to.Acknowledge)
	}
	var peers []any
	for _, p := range to.Peers {
		m := map[string]any{"name": p.Name, "address": p.Address, "flow": p.Flow, "policy": string(p.Policy)}
		if p.Others != nil {
			m["others"] = p.Others
		}
		if p.Paths != nil {
			m["paths"], m["path_mode"] = pathsDocument("address", p.Paths), string(p.PathMode)
		}
		peers = append(peers, m)
	}
	doc["peers"] = peers
	return doc
}

func pathsDocument(key string, paths []Path) (docs []any) {
	for _, p := range paths {
		doc := map[string]any{"rdma": p.RDMA, key: p.Address + p.Listen}
		if p.Others != nil {
			doc["others"] = p.Others
		}
		docs = append(docs, doc)
	}
	return docs
}

func stageDocuments(stages []Stage) (docs []any) {
	for _, s := range stages {
		switch {
		case s.Set != nil:
			docs = append(docs, map[string]any{"set": setDocument(s.Set)})
		case s.Sequence != nil:
			docs = append(docs, map[string]any{"sequence": map[string]any{"offset": s.Sequence.Offset}})
		case s.Timestamp != nil:
			docs = append(docs, map[string]any{"timestamp": map[string]any{"offset": s.Timestamp.Offset}})
		case s.Mold != nil:
			docs = append(docs, map[string]any{"moldudp64": feedDocument(s.Mold)})
		case s.Counter != nil:
			docs = append(docs, map[string]any{"counter": feedDocument(s.Counter)})
		case s.Sum != nil:
			docs = append(docs, map[string]any{"sum": map[string]any{"type": string(s.Sum.Type)}})
		}
	}
	return docs
}

func feedDocument(m *Feed) map[string]any {
	var lines []any
	for _, l := range m.Lines {
		lines = append(lines, map[string]any{"name": l.Name, "address": l.Address.String(), "port": l.Port})
	}
	doc := map[string]any{"lines": lines, "gap": m.Gap.String(), "hold": m.Hold}
	if m.Server != "" {
		doc["server"], doc["ask"] = m.Server, m.Ask.String()
	}
	if c := m.Counter; c != nil {
		doc["offset"], doc["width"], doc["order"] = c.Offset, c.Width, string(c.Order)
	}
	return doc
}

func setDocument(s *Set) map[string]any {
	doc := map[string]any{"vlan": s.VLAN}
	if s.MACSource != nil {
		doc["mac_source"] = s.MACSource.String()
	}
	if s.MACDestination != nil {
		doc["mac_destination"] = s.MACDestination.String()
	}
	if s.IPSource.IsValid() {
		doc["ip_source"] = s.IPSource.String()
	}
	if s.IPDestination.IsValid() {
		doc["ip_destination"] = s.IPDestination.String()
	}
	if s.PortSource != 0 {
		doc["port_source"] = s.PortSource
	}
	if s.PortDestination != 0 {
		doc["port_destination"] = s.PortDestination
	}
	return doc
}
