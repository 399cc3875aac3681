package lockserver

import (
	"errors"
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
	var tokens []leaseserver.Token
	err := ReadCredentials(flag, file, func(c CredentialLine) (err error) {
		token := leaseserver.Token{Secret: c.Secret, Certificate: c.Certificate}
		for name, value := range c.Fields {
			switch name {
			case "right":
				if token.Right, err = leaseserver.ParseRight(value); err != nil {
					return err
				}
			case "prefix":
				if token.Prefix = value; value == "" {
					return errors.New("the prefix is empty: leave it out for all locks")
				}
			case "name":
				token.Name = value
			default:
				return errors.New("there is more than a token: add right=…, prefix=… or name=… only")
			}
		}
		tokens = append(tokens, token)
		return nil
	})
	return tokens, err
}

// A CredentialLine is one line of a file of tokens.
type CredentialLine struct {
	Secret, Certificate string            // one of them is empty
	Fields              map[string]string // by the word before =
}

// ReadCredentials reads a file of tokens, one a line, each with words name=value, and calls add for each. Instead of a
// token, cert-cn:NAME and cert-san:NAME stand for client certificates with that name. Its errors quote no token.
func ReadCredentials(flag, file string, add func(CredentialLine) error) error {
	return eachLine(flag, file, "token", func(at string, words []string) error {
		line := CredentialLine{Secret: words[0], Fields: map[string]string{}}
		if names, ok := strings.CutPrefix(words[0], "cert-"); ok && strings.Contains(names, ":") {
			line.Secret, line.Certificate = "", names
		}
		if err := checkOnce(at, words[1:]); err != nil {
			return err
		}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			line.Fields[name] = value
		}
		if err := add(line); err != nil {
			return program.UsageError("%s: %w", at, err)
		}
		return nil
	})
}
