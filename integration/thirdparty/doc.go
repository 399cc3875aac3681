// Package thirdparty is the module of tests that need servers and libraries of others, and of the benchmarks.
// No published module depends on it.
package thirdparty
