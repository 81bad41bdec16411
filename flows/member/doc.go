// Package member makes the flow of a log a member of a group: see package group.
//
// A leader's records come from clients, as in any other log (package source/message). Each is posted to
// the followers from the frame in which it arrived, before the disk gets it. A follower's records come
// over a link (package replica). Both are written by the same writer (package sink/disk). A message
// is acknowledged when it is committed.
//
// [Source] and [Sink] wrap the two ends of the flow. Their methods belong to the worker's thread where
// those of the ends do.
package member
