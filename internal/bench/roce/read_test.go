package roce

import (
	"strings"
	"testing"
)

func TestReadTable(t *testing.T) {
	const latency = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 64      1000          1.50           9.25         2.75     	       3.00        	0.50		7.00   		9.00   
`
	w := work{size: 64, count: 1000}
	if s, err := readTable([]byte(latency), w); s.typical != 2.75 || s.tail != 7 || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	const bandwidth = " 4096       500              0.00               123.45		   0.031603\n"
	if s, err := readTable([]byte(bandwidth), work{size: 4096, count: 500, bandwidth: true}); s.rate != 123.45 || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "64", " 64 999 1 2 3 4 5 6 7\n", " 64 1000 1 2 x 4 5 6 7\n", " 64 1000 1 2 3 4 5 0 7\n", " 65 1000 1 2 3 4 5 6 7\n"} {
		if s, err := readTable([]byte(bad), w); err == nil {
			t.Errorf("%q is %+v", bad, s)
		}
	}
}

func TestReadSockperf(t *testing.T) {
	const good = `sockperf: # dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0
sockperf: ---> percentile 99.900 =   22.460
sockperf: ---> percentile 99.000 =    9.667
sockperf: ---> percentile 50.000 =    4.425
`
	if s, err := readSockperf([]byte(good), work{}); s.typical != 4.425 || s.tail != 9.667 || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", strings.Replace(good, "dropped messages = 0", "dropped messages = 1", 1),
		strings.Replace(good, "4.425", "0.000", 1), strings.Replace(good, "99.000", "98.000", 1)} {
		if s, err := readSockperf([]byte(bad), work{}); err == nil {
			t.Errorf("%q is %+v", bad, s)
		}
	}
}

func TestReadIperf(t *testing.T) {
	const good = `{"end": {"sum_sent": {"bits_per_second": 9e9}, "sum_received": {"bits_per_second": 8388608}}}`
	if s, err := readIperf([]byte(good), work{}); s.rate != 1 || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "{}", `{"error": "unable to connect"}`} {
		if s, err := readIperf([]byte(bad), work{}); err == nil {
			t.Errorf("%q is %+v", bad, s)
		}
	}
}
