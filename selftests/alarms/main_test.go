package alarms

import (
	"os"
	"testing"

	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// program is the path of the daemon, built once.
var program, flowTest string

func TestMain(m *testing.M) { os.Exit(daemon.WithPrograms(m.Run, &program, &flowTest)) }
