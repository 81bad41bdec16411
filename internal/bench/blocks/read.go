package blocks

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// sample is the result of one run.
type sample struct {
	rate            float64 // requests per second
	p50, p99, p99_9 float64 // of a request, in microseconds
}

// readOurs parses the output of unified-flow-test.
func readOurs(out []byte) (s sample, err error) {
	var r struct {
		Messages, Seconds float64
		Latency           *latency.Summary `json:"latency_ns"`
	}
	if err = json.Unmarshal(out, &r); err != nil {
		return s, err
	}
	if r.Messages < 1 || r.Seconds <= 0 || r.Latency == nil {
		return s, errors.New("it read nothing")
	}
	l := r.Latency
	return sample{r.Messages / r.Seconds, micro(float64(l.P50)), micro(float64(l.P99)), micro(float64(l.P999))}, nil
}

// readFio parses the JSON of fio, which may have warnings in front of it.
func readFio(out []byte) (s sample, err error) {
	var all struct {
		Jobs []struct {
			Error int
			Read  struct {
				Rate    float64 `json:"iops"`
				Latency struct {
					Percentile map[string]float64
				} `json:"lat_ns"`
			}
		}
	}
	if err = json.Unmarshal(out[max(0, bytes.IndexByte(out, '{')):], &all); err != nil {
		return s, err
	}
	if len(all.Jobs) != 1 || all.Jobs[0].Error != 0 {
		return s, errors.New("fio reports an error")
	}
	r := &all.Jobs[0].Read
	p := r.Latency.Percentile
	if s = (sample{r.Rate, micro(p["50.000000"]), micro(p["99.000000"]), micro(p["99.900000"])}); s.rate <= 0 || s.p50 <= 0 || s.p99 <= 0 || s.p99_9 <= 0 {
		err = errors.New("fio read nothing, or tells no percentiles")
	}
	return s, err
}

func micro(ns float64) float64 { return ns / 1e3 }
