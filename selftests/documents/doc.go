// Package documents has no code of its own: its tests start the daemon with the configurations of README, of the documents and of the package, as they stand.
package documents
