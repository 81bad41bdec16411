// Package attach measures programs that attach to the daemon against other programs: see TestAgainstIceoryx.
package attach
