package fiberv3

import (
	"context"
	"errors"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

// Lock returns a Fiber handler that runs the handlers after it under the lock on the path parameter
// "id". It panics on a nil Locker and on the zero Namespace.
func Lock(locker *advisory.Locker, ns namespace.Namespace) fiber.Handler {
	h, err := New(middleware.Config{Locker: locker}, Param(ns, "id"))
	if err != nil {
		panic(err)
	}
	return h
}

// Param is middleware.PathValue for the parameters of Fiber, which leaves them escaped unless its
// UnescapePath is set. The key is a copy, because Fiber reuses the parameter's memory for the next
// request. An extractor of your own must copy too.
func Param(ns namespace.Namespace, name string) func(fiber.Ctx) (namespace.Key, error) {
	entity := middleware.Entity(ns, name)
	return func(c fiber.Ctx) (namespace.Key, error) {
		value := strings.Clone(c.Params(name))
		if !c.App().Config().UnescapePath {
			value = middleware.Unescape(value)
		}
		return entity(value)
	}
}

// New returns a Fiber handler that runs the handlers after it under the lock on the key that key
// finds; see middleware.KeyFunc for its errors. It ignores Config's Key, ReadAhead and
// ErrorHandler, which are for net/http. If the Config is not valid, New returns a
// *middleware.ConfigError.
func New(c middleware.Config, key func(fiber.Ctx) (namespace.Key, error)) (fiber.Handler, error) {
	g, err := middleware.NewGate(c)
	if err != nil {
		return nil, err
	}
	if key == nil {
		return nil, &middleware.ConfigError{Field: "key", Value: "nil", Remedy: "pass a function, such as Param makes"}
	}
	return func(c fiber.Ctx) error {
		if g.Passes(c.Method()) {
			return c.Next()
		}
		defer c.SetContext(c.Context())
		k, err := key(c)
		err = g.Do(c.Context(), k, err, func(ctx context.Context) error {
			c.SetContext(ctx)
			return c.Next()
		})
		if p, ok := errors.AsType[*middleware.ProblemError](err); ok {
			c.Response().Reset()
			p.Instance = c.Path()
			for name, values := range p.Header() {
				c.Set(name, values[0])
			}
			return c.Status(p.Status).Send(p.Body())
		}
		return err
	}, nil
}
