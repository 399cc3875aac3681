package background

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrGoexit is the error of a function that ended its goroutine, as FailNow of a test does.
var ErrGoexit = errors.New("it has ended its goroutine")

// A PanicError is the error of a function that panicked. Its text is the value's.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprint(e.Value) }

// Unwrap returns the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// DidNotReturn reports whether err means that a function panicked or ended its goroutine.
func DidNotReturn(err error) bool {
	_, panicked := errors.AsType[*PanicError](err)
	return panicked || errors.Is(err, ErrGoexit)
}

// Call calls a function of the program on the caller's goroutine, and turns a panic into a *PanicError.
// If f ends the goroutine, Call cannot return: ended receives ErrGoexit, and then the goroutine ends.
func Call(f func() error, ended func(error)) (err error) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		} else if !returned {
			ended(ErrGoexit)
		}
	}()
	err = f()
	returned = true
	return err
}

// Each calls f, which is code of the program, with each of all, on goroutines of its own. A call that
// does not return does not affect the others.
func Each[T any](all []T, f func(T)) {
	for len(all) > 0 {
		_ = Outlive(func() error {
			for len(all) > 0 {
				next := all[0]
				all = all[1:]
				f(next)
			}
			return nil
		})
	}
}

// Outlive calls a function of the program on a goroutine of its own, and waits for it. It always returns:
// the error is f's, a *PanicError, or ErrGoexit.
func Outlive(f func() error) error {
	result := make(chan error, 1)
	end := func(err error) { result <- err }
	go func() { end(Call(f, end)) }()
	return <-result
}
