// Package etcd is the engine that registers a daemon in etcd, and finds others there.
//
// A [Client] holds a lease, and keeps the daemon's record under PREFIX/daemons/NAME for as long as the lease lives. It
// watches the records of the names that flows use, and no others: with hundreds of daemons most changes do not concern
// a daemon. A name has one owner: a daemon does not take one that another instance holds, and waits until that one's
// lease has ended.
//
// While etcd does not answer, nothing that is known is forgotten, and a lease that ended meanwhile is replaced by a new
// one when etcd is back. Waits between attempts are short, with jitter, so that hundreds of daemons do not return at
// the same moment.
//
// One goroutine has the lease, and one more follows each name. Any goroutine may call the methods. It needs etcd 3.4 or
// newer. The path of data does not import this package.
package etcd
