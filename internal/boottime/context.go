package boottime

import "context"

// A Context is the context of work under a right that ends by a clock, such as a lease. Its Err and
// Done check the clock: a process that was stopped must not act before its timers have run. The
// embedded Context does not check.
//
// A context that context.WithValue derived from it checks too. A context that WithCancel,
// WithTimeout or an errgroup derived checks once, when it is made. Afterwards it ends with this one.
type Context struct {
	context.Context

	expired func() error
	end     context.CancelCauseFunc
}

// NewContext returns a Context with the values and the deadline of parent. It ends with parent, with
// a call of the function, and with the first check at which expired returns an error, which is its
// cause. The first cause stays, and expired may call the function itself.
//
// NewContext and the function call methods of parent, which can be code of the program. So do not
// make, check or end a Context while you hold a mutex that such code may lock.
func NewContext(parent context.Context, expired func() error) (*Context, context.CancelCauseFunc) {
	inner, end := context.WithCancelCause(parent)
	return &Context{inner, expired, end}, end
}

// Err checks the clock.
func (c *Context) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if cause := c.expired(); cause != nil {
		c.end(cause)
	}
	return c.Context.Err()
}

// Done checks the clock. Package context calls it for each context that is derived from this one.
func (c *Context) Done() <-chan struct{} {
	_ = c.Err()
	return c.Context.Done()
}
