package roce

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// readTable reads the row in a table of perftest's form: the median and the 99th percentile of latencies in
// microseconds, or the average bandwidth in MB/s.
func readTable(out []byte, w work) (s sample, err error) {
	f, err := row(string(out), w)
	if err != nil {
		return s, err
	}
	if w.bandwidth {
		s.rate, err = positive(f[3])
		return s, err
	}
	var err2 error
	s.typical, err = positive(f[4])
	s.tail, err2 = positive(f[7])
	return s, errors.Join(err, err2)
}

func row(out string, w work) ([]string, error) {
	columns := 9
	if w.bandwidth {
		columns = 5
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != columns || f[0] != strconv.Itoa(w.size) {
			continue
		}
		if f[1] != strconv.Itoa(w.count) {
			return nil, fmt.Errorf("it did %s messages and not %d", f[1], w.count)
		}
		return f, nil
	}
	return nil, fmt.Errorf("there is no row of %d bytes in %q", w.size, out)
}

func positive(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err == nil && v <= 0 {
		err = fmt.Errorf("it measured %s", text)
	}
	return v, err
}

// percentile is a line of sockperf's summary.
var percentile = regexp.MustCompile(`percentile (50|99)\.000 = +([0-9.]+)`)

func readSockperf(out []byte, _ work) (s sample, err error) {
	if !strings.Contains(string(out), "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0") {
		return s, fmt.Errorf("it lost messages, or says nothing of them: %q", out)
	}
	for _, m := range percentile.FindAllStringSubmatch(string(out), -1) {
		to := &s.typical
		if m[1] == "99" {
			to = &s.tail
		}
		if *to, err = positive(m[2]); err != nil {
			return s, err
		}
	}
	if s.typical == 0 || s.tail == 0 {
		err = fmt.Errorf("there are no percentiles in %q", out)
	}
	return s, err
}

func readIperf(out []byte, _ work) (s sample, err error) {
	var r struct {
		End struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	if err = json.Unmarshal(out, &r); err == nil && r.End.Received.Rate <= 0 {
		err = errors.New("it measured nothing")
	}
	s.rate = r.End.Received.Rate / 8 / (1 << 20)
	return s, err
}
