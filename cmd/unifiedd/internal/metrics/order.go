package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
)

var (
	descOrdersConnected   = describe("orders_connected", "1: a flow that sends orders is connected to its exchange; 0: it is not, and status says why.", "flow")
	descOrdersConnections = describe("orders_connections_total", "Connections to the exchange.", "flow")
	descOrdersLost        = describe("orders_connections_lost_total", "Connections to the exchange that ended while the flow ran.", "flow")
	descOrdersFailed      = describe("orders_connects_failed_total", "Attempts to connect to the exchange that failed.", "flow")
	descOrdersStopped     = describe("orders_stopped", "Whether the kill switch of the flow is on (1) or not (0).", "flow")
	descOrdersSegments    = describe("orders_segments_total", "Orders that left in a segment of unifiedd.", "flow")
	descOrdersEarly       = describe("orders_early_total", "Acknowledgements that came before the kernel had the order: the next order goes the kernel's way.", "flow")
	descOrdersKernel      = describe("orders_kernel_total", "Orders that the kernel sent, by the reason.", "flow", "reason")
	descOrdersWaits       = describe("orders_waits_total", "Rounds in which an order waited, by the reason.", "flow", "reason")
	descOrdersBytes       = describe("orders_bytes_total", "Bytes of orders that left.", "flow")
	descOrdersBroken      = describe("orders_broken_segments_total", "Segments that the interface did not take. The kernel sent those orders again.", "flow")
	descOrdersPartial     = describe("orders_partial_total", "Orders of which the kernel took a part at first.", "flow")
	descOrdersReceived    = describe("orders_received_bytes_total", "Bytes that the exchange sent.", "flow")
	descOrdersAgain       = describe("orders_retransmitted_total", "Segments that the kernel sent again.", "flow")
	descOrdersUnacked     = describe("orders_unacknowledged_bytes", "Bytes of orders that the exchange has not acknowledged.", "flow")
	descOrdersTimes       = describe("orders_latency_seconds", "Histogram, of orders that have left: from the tick's arrival to the program's decision (tick_to_decision), from there to the wire (decision_to_out), and both (tick_to_out). tick-to-trade.md says by which clocks.", "flow", "part")
	descOrdersNoTime      = describe("orders_without_time_total", "Orders that have left of which a time is not known: tick, as the program did not say what they answer, or stamp, as the kernel or the card did not say when the segment left.", "flow", "time")
	descOrdersTimed       = describe("orders_times_written_total", "Orders whose times are in the file that to.order.times names.", "flow")
	descOrdersUntimed     = describe("orders_times_dropped_total", "Orders that are not in it: slow_file (8192 waited already) or file_error. Status has the error.", "flow", "reason")
	descOrdersRoundTrip   = describe("orders_round_trip_seconds", "The shortest round trip to the exchange so far.", "flow")

	descRulesMessages   = describe("order_rules_messages_total", "Messages that rules have looked at: matched, unmatched, short (it ends before bytes that a rule needs), or no_udp, a packet without a whole datagram.", "flow", "outcome")
	descRulesMatched    = describe("order_rules_matched_total", "Messages that a rule made an order of.", "flow", "rule")
	descRulesLeft       = describe("order_rules_left_total", "Its orders that left. unifiedd_dropped_packets_total has those that did not.", "flow", "rule")
	descRulesLoggedIn   = describe("order_rules_logged_in", "1: orders may leave on the connection; 0: there is none, or the login is not answered.", "flow")
	descRulesHeartbeats = describe("order_rules_heartbeats_total", "Heartbeats that left.", "flow")
	descRulesRefused    = describe("order_rules_session_refused_total", "Heartbeats and logins that have not left; orders.md has the reasons.", "flow", "reason")
)

func collectOrders(out chan<- prometheus.Metric, flow string, o *status.Orders) {
	gauge(out, descOrdersConnected, truth(o.Connected), flow)
	counter(out, descOrdersConnections, o.Connections, flow)
	counter(out, descOrdersLost, o.Lost, flow)
	counter(out, descOrdersFailed, o.Failed, flow)
	gauge(out, descOrdersStopped, truth(o.Stopped), flow)
	counter(out, descOrdersSegments, o.Segments, flow)
	counter(out, descOrdersEarly, o.Early, flow)
	each(out, descOrdersKernel, o.Kernel, flow)
	each(out, descOrdersWaits, o.Waits, flow)
	counter(out, descOrdersBytes, o.Bytes, flow)
	counter(out, descOrdersBroken, o.Broken, flow)
	counter(out, descOrdersPartial, o.Partial, flow)
	counter(out, descOrdersReceived, o.Received, flow)
	counter(out, descOrdersAgain, o.Retransmitted, flow)
	gauge(out, descOrdersUnacked, float64(o.Unacknowledged), flow)
	gauge(out, descOrdersRoundTrip, o.RoundTrip, flow)
	collectOrderTimes(out, flow, o.Times)
	collectRules(out, flow, o.Rules)
}

// collectOrderTimes sends the metrics of the times of orders.
func collectOrderTimes(out chan<- prometheus.Metric, flow string, t *status.OrderTimes) {
	if t == nil {
		return
	}
	histogram(out, descOrdersTimes, t.TickToDecision, flow, "tick_to_decision")
	histogram(out, descOrdersTimes, t.DecisionToOut, flow, "decision_to_out")
	histogram(out, descOrdersTimes, t.TickToOut, flow, "tick_to_out")
	counter(out, descOrdersNoTime, t.NoTick, flow, "tick")
	counter(out, descOrdersNoTime, t.NoStamp, flow, "stamp")
	if t.File != nil {
		counter(out, descOrdersTimed, t.File.Orders, flow)
		each(out, descOrdersUntimed, t.File.Dropped, flow)
	}
}

// collectRules collects the metrics of rules that make orders. It does nothing if a program makes them.
func collectRules(out chan<- prometheus.Metric, flow string, r *status.OrderRules) {
	if r == nil {
		return
	}
	each(out, descRulesMessages, map[string]uint64{"matched": r.Matched, "unmatched": r.Unmatched, "short": r.Short, "no_udp": r.NoUDP}, flow)
	for _, one := range r.Rules {
		counter(out, descRulesMatched, one.Matched, flow, one.Name)
		counter(out, descRulesLeft, one.Left, flow, one.Name)
	}
	gauge(out, descRulesLoggedIn, truth(r.LoggedIn), flow)
	counter(out, descRulesHeartbeats, r.Heartbeats, flow)
	each(out, descRulesRefused, r.Refused, flow)
}
