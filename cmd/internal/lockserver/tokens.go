package lockserver

import (
	"strings"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// ReadTokens reads a file of bearer tokens, one a line, and the rights of each:
//
//	TOKEN [right=hold] [prefix=jobs/] [name=ops] [# comment]
//
// Instead of a TOKEN, cert-cn:NAME and cert-san:NAME stand for client certificates with that name.
// Without a file it returns nil. Its errors quote no token.
func ReadTokens(flag, file string) ([]leaseserver.Token, error) {
	if file == "" {
		return nil, nil
	}
	content, err := readLines(flag, file)
	if err != nil {
		return nil, err
	}
	var tokens []leaseserver.Token
	for number, fields := range wordsOfLines(content) {
		token := leaseserver.Token{Secret: fields[0]}
		if names, ok := strings.CutPrefix(fields[0], "cert-"); ok && strings.Contains(names, ":") {
			token.Secret, token.Certificate = "", names
		}
		if err := checkOnce(flag, file, number, fields[1:]); err != nil {
			return nil, err
		}
		for _, field := range fields[1:] {
			name, value, _ := strings.Cut(field, "=")
			switch name {
			case "right":
				if token.Right, err = leaseserver.ParseRight(value); err != nil {
					return nil, program.UsageError("%s: line %d of %s: %w", flag, number, file, err)
				}
			case "prefix":
				if token.Prefix = value; value == "" {
					return nil, program.UsageError("%s: line %d of %s: the prefix is empty: leave it out for all locks", flag, number, file)
				}
			case "name":
				token.Name = value
			default:
				return nil, program.UsageError("%s: line %d of %s has more than a token: add right=…, prefix=… or name=… only", flag, number, file)
			}
		}
		tokens = append(tokens, token)
	}
	if tokens == nil {
		return nil, program.UsageError("%s: %s has no token", flag, file)
	}
	return tokens, nil
}
