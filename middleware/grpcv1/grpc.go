package grpcv1

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

// A KeyFunc finds the entity of a call; see middleware.KeyFunc for its errors. method has the form
// "/package.Service/Method". req is nil for a stream, whose entity is in the metadata of ctx.
type KeyFunc func(ctx context.Context, method string, req any) (namespace.Key, error)

// An Interceptor runs the handlers of a server under locks.
type Interceptor struct {
	gate *middleware.Gate
	key  KeyFunc
}

// New returns an Interceptor. It ignores Config's Key, ReadAhead, LockSafeMethods and ErrorHandler,
// which are for HTTP. If the Config is not valid, New returns a *middleware.ConfigError.
func New(c middleware.Config, key KeyFunc) (*Interceptor, error) {
	g, err := middleware.NewGate(c)
	if err != nil {
		return nil, err
	}
	if key == nil {
		return nil, &middleware.ConfigError{Field: "key", Value: "nil", Remedy: "pass the function that finds the entity of a call"}
	}
	return &Interceptor{g, key}, nil
}

// Unary is a grpc.UnaryServerInterceptor.
func (i *Interceptor) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
	err = i.do(ctx, info.FullMethod, req, func(ctx context.Context) (err error) {
		reply, err = next(ctx, req)
		return err
	})
	return reply, err
}

// Stream is a grpc.StreamServerInterceptor. The lock is held for the whole stream.
func (i *Interceptor) Stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return i.do(s.Context(), info.FullMethod, nil, func(ctx context.Context) error { return next(srv, stream{s, ctx}) })
}

// do runs next under the lock, and returns refusals as statuses.
func (i *Interceptor) do(ctx context.Context, method string, req any, next func(context.Context) error) error {
	key, err := i.key(ctx, method, req)
	err = i.gate.Do(ctx, key, err, next)
	if p, ok := errors.AsType[*middleware.ProblemError](err); ok {
		info := &errdetails.ErrorInfo{Reason: p.Reason(), Domain: middleware.ErrorDomain, Metadata: p.Metadata()}
		s, err := status.New(codes.Code(p.Code()), p.Message()).WithDetails(info)
		if p.Retry() > 0 {
			s, err = s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(p.Retry())})
		}
		return cmp.Or(s.Err(), err)
	}
	return err
}

// A stream is a ServerStream with the context of its lock.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }
