// Package integration has tests with several processes, broken networks and other
// servers in between. They need the build tag integration.
package integration
