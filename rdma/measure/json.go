package measure

import "encoding/json"

// MarshalJSON writes the columns by their names, with units, and the way of the test.
func (l Latency) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Bytes      uint64  `json:"bytes"`
		Iterations uint64  `json:"iterations"`
		Way        string  `json:"measured"`
		Min        float64 `json:"t_min_usec"`
		Max        float64 `json:"t_max_usec"`
		Typical    float64 `json:"t_typical_usec"`
		Average    float64 `json:"t_avg_usec"`
		Stdev      float64 `json:"t_stdev_usec"`
		Deviation  float64 `json:"standard_deviation_usec"`
		P99        float64 `json:"percentile_99_usec"`
		P999       float64 `json:"percentile_99_9_usec"`
	}{l.Bytes, l.Iterations, l.Way.String(), l.Min, l.Max, l.Typical, l.Average, l.Stdev, l.Deviation, l.P99, l.P999})
}

// MarshalJSON writes the columns by their names, and the unit of the first two.
func (b Bandwidth) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Bytes      uint64  `json:"bytes"`
		Iterations uint64  `json:"iterations"`
		Unit       string  `json:"unit"`
		Peak       float64 `json:"bw_peak"`
		Average    float64 `json:"bw_average"`
		Rate       float64 `json:"msg_rate_mpps"`
	}{b.Bytes, b.Iterations, b.Unit.String(), b.Peak, b.Average, b.Rate})
}
