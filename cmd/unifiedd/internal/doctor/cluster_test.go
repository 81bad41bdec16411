package doctor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/cluster/etcd"
	"github.com/unifiedd/unifiedd/flows/config"
)

// TestJudgeEndpoint: an endpoint that does not answer or has no leader is a fault, and one whose clock differs a
// warning.
func TestJudgeEndpoint(t *testing.T) {
	const endpoint = "https://10.0.0.5:2379"
	for _, c := range []struct {
		name  string
		h     etcd.Health
		err   error
		worst State
		says  string
	}{
		{"well", etcd.Health{Version: "3.4.23", Leader: true, Took: time.Millisecond, Clock: time.Second}, nil, OK, "release 3.4.23"},
		{"away", etcd.Health{}, errors.New("connection refused"), Fail, "connection refused"},
		{"no leader", etcd.Health{Version: "3.4.23"}, nil, Fail, "knows no leader"},
		{"ahead", etcd.Health{Version: "3.4.23", Leader: true, Clock: time.Minute}, nil, Warn, "1m0s off"},
		{"behind", etcd.Health{Version: "3.4.23", Leader: true, Clock: -time.Minute}, nil, Warn, "-1m0s off"},
	} {
		worst, text := OK, ""
		for _, check := range judgeEndpoint(endpoint, c.h, c.err) {
			worst, text = max(worst, check.State), text+check.Detail
			if check.State > OK && check.Remedy == "" || !strings.Contains(check.Name, endpoint) {
				t.Errorf("%s: %+v", c.name, check)
			}
		}
		if worst != c.worst || !strings.Contains(text, c.says) {
			t.Errorf("%s: %v, %q; want %v with %q", c.name, worst, text, c.worst, c.says)
		}
	}
	c := config.Default()
	if c.Cluster.Name = "storage-1"; clusterName(c).State != OK {
		t.Error("a good name is refused")
	}
	if c.Cluster.Name = "storage_1"; clusterName(c).State != Fail {
		t.Error("a name that is none is good")
	}
}
