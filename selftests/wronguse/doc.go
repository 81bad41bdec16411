// Package wronguse has the test that runs each test program with wrong arguments.
package wronguse
