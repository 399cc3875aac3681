//go:build !mailboxes

package main

import "context"

var (
	later       map[string]newRole
	laterTables map[string]func(*tables) (migrate func(context.Context) error, script string, err error)
)
