// Package advisory is a placeholder comment until doc.go is written.
package advisory
