// Package page serves a read-only status page for a browser, at / of the metrics port and of the control socket.
//
// The page is three embedded files: HTML, a style sheet and one script. It loads nothing from elsewhere, and its
// Content-Security-Policy forbids it to. The figures arrive as server-sent events, one [Document] a second. The
// documents are made only while somebody looks, once for all viewers. Only a [History] goes on without viewers.
//
// What anybody on the network may see is less than what the owner of the control socket may: [Public] leaves out
// errors, paths and addresses, as /readyz and /metrics do.
//
// selftests/browser opens the page in Chromium, and makes the pictures of the documents.
//
// Any goroutine may use a [Server].
package page
