package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
)

var (
	descFeedMessages   = describe("feed_messages_total", "Messages of a feed that were given out, each once and in order.", "flow")
	descFeedLost       = describe("feed_lost_messages_total", "Messages that no line had, of declared gaps.", "flow")
	descFeedGaps       = describe("feed_gaps_total", "Gaps of a feed that were declared.", "flow")
	descFeedRequests   = describe("feed_requests_total", "Requests to the retransmission server of a feed.", "flow")
	descFeedSessions   = describe("feed_sessions_total", "Sessions of a feed that have begun.", "flow")
	descFeedRestarts   = describe("feed_restarts_total", "Sessions that the sender of a feed has begun by a restart, without a new name.", "flow")
	descFeedOthers     = describe("feed_other_packets_total", "Packets that are of no line of the feed.", "flow")
	descFeedWins       = describe("feed_line_wins_total", "Messages of which the copy of this line was the first. The line server is the retransmission server.", "flow", "line")
	descFeedDuplicates = describe("feed_line_duplicates_total", "Messages of the line that were there already.", "flow", "line")
	descFeedMissing    = describe("feed_line_missing_total", "Messages that the line left out.", "flow", "line")
	descFeedLate       = describe("feed_line_late_total", "Messages that came behind later ones of the line.", "flow", "line")
	descFeedRefused    = describe("feed_line_refused_packets_total", "Packets of the line that gave no message, by reason.", "flow", "line", "reason")
)

func collectFeed(out chan<- prometheus.Metric, flow string, f *status.Feed) {
	counter(out, descFeedMessages, f.Messages, flow)
	counter(out, descFeedLost, f.Lost, flow)
	counter(out, descFeedGaps, f.Gaps, flow)
	counter(out, descFeedRequests, f.Requests, flow)
	counter(out, descFeedSessions, f.Sessions, flow)
	counter(out, descFeedRestarts, f.Restarts, flow)
	counter(out, descFeedOthers, f.Others, flow)
	for _, l := range f.Lines {
		counter(out, descFeedWins, l.Wins, flow, l.Name)
		counter(out, descFeedDuplicates, l.Duplicates, flow, l.Name)
		counter(out, descFeedMissing, l.Missing, flow, l.Name)
		counter(out, descFeedLate, l.Late, flow, l.Name)
		each(out, descFeedRefused, l.Refused, flow, l.Name)
	}
}
