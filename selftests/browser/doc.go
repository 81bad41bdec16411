// Package browser has no code: its tests open the daemon's status page in a browser. It is a module of its own, so
// that unifiedd does not depend on what drives the browser.
package browser
