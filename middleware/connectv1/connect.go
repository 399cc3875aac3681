package connectv1

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

// A KeyFunc finds the entity of a call; see middleware.KeyFunc for its errors. msg is nil for
// a stream, whose entity is in the header.
type KeyFunc func(ctx context.Context, spec connect.Spec, header http.Header, msg any) (namespace.Key, error)

// New returns an Interceptor for handlers. It ignores Config's Key, ReadAhead, LockSafeMethods and
// ErrorHandler, which are for HTTP. If the Config is not valid, New returns a
// *middleware.ConfigError; do not use the Interceptor then.
func New(c middleware.Config, key KeyFunc) (connect.Interceptor, error) {
	g, err := middleware.NewGate(c)
	if err == nil && key == nil {
		err = &middleware.ConfigError{Field: "key", Value: "nil", Remedy: "pass the function that finds the entity of a call"}
	}
	return interceptor(func(ctx context.Context, spec connect.Spec, header http.Header, msg any, next func(context.Context) error) error {
		k, err := key(ctx, spec, header, msg)
		return refusal(g.Do(ctx, k, err, next))
	}), err
}

// An interceptor runs next under the lock that a call needs.
type interceptor func(ctx context.Context, spec connect.Spec, header http.Header, msg any, next func(context.Context) error) error

// WrapUnary implements connect.Interceptor.
func (lock interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (reply connect.AnyResponse, err error) {
		err = lock(ctx, req.Spec(), req.Header(), req.Any(), func(ctx context.Context) (err error) {
			reply, err = next(ctx, req)
			return err
		})
		return reply, err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (lock interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor. The lock is held for the whole stream.
func (lock interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, s connect.StreamingHandlerConn) error {
		return lock(ctx, s.Spec(), s.RequestHeader(), nil, func(ctx context.Context) error { return next(ctx, s) })
	}
}

// refusal converts a refusal to an error of Connect. Its texts are UTF-8, so they can be encoded.
func refusal(err error) error {
	p, ok := errors.AsType[*middleware.ProblemError](err)
	if !ok {
		return err
	}
	e := connect.NewError(connect.Code(p.Code()), errors.New(p.Message()))
	info, _ := connect.NewErrorDetail(&errdetails.ErrorInfo{Reason: p.Reason(), Domain: middleware.ErrorDomain, Metadata: p.Metadata()})
	e.AddDetail(info)
	if p.Retry() > 0 {
		retry, _ := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(p.Retry())})
		e.AddDetail(retry)
	}
	return e
}
