// Package browser tests the monitor's page in a real Chromium, while processes hold locks and
// wait. It contains only tests: make test-browser.
package browser
