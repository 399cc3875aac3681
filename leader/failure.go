package leader

import "strings"

// A failure is a backend's error as the Elector reports it. It matches ErrConnection, and its text begins
// with the cause.
type failure struct {
	doing string // "" = an attempt
	err   error
}

func (f *failure) Error() string {
	if f.doing == "" {
		return problem(f.err)
	}
	return f.doing + ": " + problem(f.err)
}

func (f *failure) Is(target error) bool { return target == ErrConnection }

func (f *failure) Unwrap() error { return f.err }

// A hopelessError is the reason why an Elector stopped after its first attempt.
type hopelessError struct {
	election string
	err      error
}

func (e *hopelessError) Error() string { return "leader: " + e.election + ": " + problem(e.err) }

func (e *hopelessError) Is(target error) bool { return target == ErrGaveUp }

func (e *hopelessError) Unwrap() error { return e.err }

// problem returns err's text without the prefix that backends add.
func problem(err error) string { return strings.TrimPrefix(err.Error(), "leader: ") }
