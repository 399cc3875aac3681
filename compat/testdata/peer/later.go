//go:build !mailboxes

package main

import "context"

var (
	later         map[string]newRole
	laterRefusals []func(error) bool
	laterTables   map[string]func(*tables) (migrate func(context.Context) error, script string, err error)
)
