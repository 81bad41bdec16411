package group

import (
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// failure is something that happens to members while a history is recorded.
type failure struct {
	name    string
	deposes bool // another member must lead before it ends
	forgets bool // a majority loses what it has in memory only
	// begin makes the leader fail, or others instead or as well. end ends it.
	begin func(r *recorder, leader int) (end func())
}

// failures are all kinds.
var failures = []failure{
	{"kill the leader", true, false, fails((*group).kill, 0)},
	{"stop the leader", true, false, fails((*group).pause, 0)},
	{"cut off the leader", true, false, fails((*group).cut, 0)},
	{"kill a follower", false, false, fails((*group).kill, 1)},
	{"stop a follower", false, false, fails((*group).pause, 1)},
	{"cut off a follower", false, false, fails((*group).cut, 1)},
	{"kill two", false, true, fails((*group).kill, 0, 1)},
	{"kill all", false, true, fails((*group).kill, 0, 1, 2)},
	{"stop two", false, false, fails((*group).pause, 0, 1)},
	{"cut off two", false, false, fails((*group).cut, 0, 1)},
	{"separate the members", false, false, func(r *recorder, _ int) func() { return testenv.Separate(r.T, r.ends[:members]...) }},
	{"separate the members, kill the leader", true, false, separateAndKill},
}

// fails returns a failure of the leader, if 0 is among the members, and of its followers 1 and 2.
func fails(begin func(*group, int), which ...int) func(r *recorder, leader int) func() {
	return func(r *recorder, leader int) func() {
		for _, n := range which {
			begin(r.group, (leader+n)%members)
		}
		return func() {
			for _, n := range which {
				r.heal((leader + n) % members)
			}
		}
	}
}

// separateAndKill lets clients reach a leader that its followers do not reach, and kills it then. What it
// has taken meanwhile, the others do not have.
func separateAndKill(r *recorder, leader int) func() {
	join := testenv.Separate(r.T, r.ends[:members]...)
	time.Sleep(time.Duration(50+r.random.IntN(200)) * time.Millisecond)
	r.kill(leader)
	join()
	return func() { r.heal(leader) }
}

// plan returns all failures in random order. The first one of a test deposes the leader.
func (r *recorder) plan(first bool) []failure {
	all := slices.Clone(failures)
	if r.level == "received" { // acknowledged messages may be in memory only
		all = slices.DeleteFunc(all, func(f failure) bool { return f.forgets })
	}
	r.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if n := slices.IndexFunc(all, func(f failure) bool { return f.deposes }); first {
		all[0], all[n] = all[n], all[0]
	}
	return all
}

// inject makes a failure happen, ends it after a while, and sometimes kills a client meanwhile.
func (r *recorder) inject(f failure) {
	r.Helper()
	who, epoch := r.leader(-1, 0)
	r.Logf("%s; member %d leads", f.name, who+1)
	end := f.begin(r, who)
	if host := r.random.IntN(2 * hosts); host < hosts && r.programs[host] != nil && !r.programs[host].Over() {
		time.Sleep(time.Duration(r.random.IntN(400)) * time.Millisecond)
		r.Logf("client %d is killed", host+1)
		r.programs[host].Kill()
		r.killed[host] = true
	}
	if f.deposes {
		r.leader(who, epoch)
	}
	time.Sleep(time.Duration(100+r.random.IntN(600)) * time.Millisecond)
	end()
}
