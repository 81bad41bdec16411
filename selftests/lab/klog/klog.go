// Package klog checks the log of the lab guest's kernel. If the kernel complains during a test, the
// test has failed, whatever its own result. The lab runs the tests of that package once more.
package klog

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// complaints matches the first lines of the kernel's reports about itself: warnings, oopses, the
// lock and memory checkers, stalls. Sources: Documentation/admin-guide/bug-hunting.rst, lib/bug.c,
// kernel/panic.c, kernel/locking/lockdep.c, kernel/rcu/tree_stall.h, kernel/watchdog.c,
// kernel/hung_task.c.
var complaints = regexp.MustCompile(strings.Join([]string{
	`\bBUG: `, `\bBUG at `, `\bWARNING: `, `\bOops\b`, `Kernel panic`, `general protection fault`,
	`[Uu]nable to handle kernel`, `Call Trace:`, `\bUBSAN: `, `\bKASAN: `, `\bKFENCE: `,
	`possible (circular|recursive) locking`, `inconsistent lock state`, `suspicious RCU usage`,
	`refcount_t: `, `list_(add|del) corruption`, `scheduling while atomic`,
	`blocked for more than \d+ seconds`, `detected stalls`, `self-detected stall`,
	`page_pool_release_retry\(\) stalled`, `NETDEV WATCHDOG`, `Bad page `, `Bad rss-counter`,
	`Out of memory: `, `hung_task`,
}, "|"))

// critical is the level from which every record is a complaint: KERN_CRIT.
const critical = 2

// context is how many records after a complaint the report includes.
const context = 30

// traceEnd closes a report with a call trace.
const traceEnd = "---[ end trace"

// Complaints returns the reports in a log, each with the records that follow it;
// none for a log without any.
func Complaints(log []wire.LogLine) (reports []string) {
	for at := 0; at < len(log); at++ {
		if !complains(log[at]) {
			continue
		}
		end := reportEnd(log, at)
		reports = append(reports, text(log[at:end]))
		at = end - 1
	}
	return reports
}

// brokenDisk matches critical messages of a file system on disks that tests break: those of the
// device mapper and the NVMe ones. The guest itself uses other disks.
var brokenDisk = regexp.MustCompile(`^EXT4-fs( error)? \((device )?(dm-|nvme)`)

func complains(l wire.LogLine) bool {
	return l.Level <= critical && !brokenDisk.MatchString(l.Text) || complaints.MatchString(l.Text)
}

// reportEnd returns the end of the report that begins at at.
func reportEnd(log []wire.LogLine, at int) int {
	limit := min(len(log), at+context)
	for end := at; end < limit; end++ {
		if strings.Contains(log[end].Text, traceEnd) {
			return end + 1
		}
	}
	return limit
}

// text returns the log as dmesg shows it, with levels.
func text(log []wire.LogLine) string {
	var b strings.Builder
	for _, l := range log {
		fmt.Fprintf(&b, "<%d> %s\n", l.Level, l.Text)
	}
	return b.String()
}

// InConsole reports whether the text of a console has a complaint. It is for a guest that can no
// longer send its log.
func InConsole(text string) bool { return complaints.MatchString(text) }

// FromComplaint returns the text of a console from the line of the first complaint on: the lines behind it say less
// than the first ones. It returns all of a text without a complaint.
func FromComplaint(text string) string {
	if at := complaints.FindStringIndex(text); at != nil {
		return text[strings.LastIndexByte(text[:at[0]], '\n')+1:]
	}
	return text
}
