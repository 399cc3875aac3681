// Package browsertest looks at the monitor's page with a real Chromium, while processes hold locks and
// wait. It has no code but tests: make test-browser.
package browsertest
