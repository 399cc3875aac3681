// Package seams has one test that drives each public entry point of the library, of the lock server
// and of the commands through each surrounding: poolers, a standby, a slow server, hostile settings of a role, missing
// rights, an old schema. Each works as documented, or refuses by a typed error, and leaves nothing behind. It
// needs the build tag integration.
package seams
