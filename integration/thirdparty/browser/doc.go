// Package browser tests pages in a real Chromium: those of the monitor, while processes hold locks and
// wait, and the documentation site. It contains only tests: make test-browser.
package browser
