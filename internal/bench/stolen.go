package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// userHertz is the unit of /proc/stat on every architecture: USER_HZ of the kernel's user space interface.
const userHertz = 100

// Stolen is how long so far the host of this machine withheld processors that the machine wanted, in sum:
// proc_stat(5). It is 0 if the kernel does not report it.
func Stolen() time.Duration {
	text, _ := os.ReadFile("/proc/stat")
	return stolen(string(text))
}

func stolen(stat string) time.Duration {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0
	}
	ticks, _ := strconv.ParseInt(fields[8], 10, 64)
	return time.Duration(ticks) * time.Second / userHertz
}

// worthSaying is the share of the processors' time below which comparisons are not affected.
const worthSaying = 0.01

// noteHost notes which share of the processors' time the machine's host took since the start of the report,
// if it is above worthSaying.
func (r *Report) noteHost() {
	if share := r.share(Stolen(), time.Now()); share >= worthSaying {
		r.Notes = append(r.Notes, fmt.Sprintf("The host of this machine had %.0f %% of its processors' time meanwhile, which widens the bounds.", 100*share))
	}
}

// share is the share of the processors' time that the host took since the start of the report.
func (r *Report) share(stolen time.Duration, now time.Time) float64 {
	return float64(stolen-r.stolen) / float64(now.Sub(r.began)) / float64(r.CPUs)
}
