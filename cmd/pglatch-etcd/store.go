package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease/etcd"
)

// passwordVariable is the environment variable with the user's password.
const passwordVariable = "PGLATCH_ETCD_PASSWORD"

// open opens the store of an etcd:// URL.
func open(ctx context.Context, app *program.App, text string) (*lockserver.OpenStore, error) {
	config, err := parse(text)
	if err != nil {
		return nil, err
	}
	config.Logger = app.Logger()
	store, err := etcd.Open(ctx, config)
	switch {
	case errors.Is(err, etcd.ErrDenied):
		return nil, &program.ExitError{Code: program.ExitRefused, Err: err}
	case err != nil:
		return nil, program.Unavailable(ctx, err)
	}
	return &lockserver.OpenStore{
		Store: store, Name: "etcd:" + strings.Join(config.Client.Endpoints, ","), Close: store.Close, Shared: true,
	}, nil
}

// parse reads a URL. It has several hosts, which net/url does not support. Errors quote no part of
// it that may be a password.
func parse(text string) (c etcd.Config, err error) {
	rest, ok := strings.CutPrefix(text, "etcd://")
	hosts, query, _ := strings.Cut(rest, "?")
	hosts = strings.TrimSuffix(hosts, "/")
	switch {
	case strings.Contains(hosts, "@"):
		return c, program.UsageError("--store has a user before @: say ?user=NAME, and give the password in %s or ?password_file=FILE", passwordVariable)
	case !ok || hosts == "" || strings.Contains(hosts, "/") || slices.Contains(strings.Split(hosts, ","), ""):
		return c, program.UsageError("--store is not of the form etcd://HOST:PORT,HOST:PORT?…")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return c, program.UsageError("--store: the parameters after ? cannot be read")
	}
	known := []string{"ca", "cert", "key", "user", "password_file", "prefix", "timeout"}
	for name := range values {
		if !slices.Contains(known, name) {
			return c, program.UsageError("--store has a parameter %q: use %s", name, strings.Join(known, ", "))
		}
	}
	if timeout := values.Get("timeout"); timeout != "" {
		if c.Timeout, err = time.ParseDuration(timeout); err != nil || c.Timeout <= 0 {
			return c, program.UsageError("--store: timeout is %q: use a positive duration, as 4s", timeout)
		}
	}
	c.Prefix = values.Get("prefix")
	files := lockserver.ClientTLS{Authority: values.Get("ca"), Cert: values.Get("cert"), Key: values.Get("key")}
	if c.Client.TLS, err = files.Config("--store: ca", "--store: cert and key"); err != nil {
		return c, err
	}
	scheme := "http://"
	if c.Client.TLS != nil {
		scheme = "https://"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		c.Client.Endpoints = append(c.Client.Endpoints, scheme+host)
	}
	c.Client.Username = values.Get("user")
	c.Client.Password, err = password(values.Get("password_file"), c.Client.Username)
	return c, err
}

// password returns the user's password: the first line of the file, or the environment variable.
func password(file, user string) (string, error) {
	given := os.Getenv(passwordVariable)
	if file != "" {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", program.UsageError("--store: password_file: %w", err)
		}
		line, _, _ := strings.Cut(string(content), "\n")
		given = strings.TrimSuffix(line, "\r")
	}
	switch {
	case user == "" && file != "":
		return "", program.UsageError("--store: password_file is for a user: say user=NAME")
	case user != "" && given == "":
		return "", program.UsageError("--store: the user %s needs a password: set %s, or say password_file=FILE", user, passwordVariable)
	case user == "":
		given = ""
	}
	return given, nil
}
