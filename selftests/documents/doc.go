// Package documents has only tests. They start the daemon with the unchanged configurations of the
// README, the documents and the package.
package documents
