package grpcv1_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/grpcv1"
	"github.com/pglatch/pglatch/middleware/middlewaretest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { leak.Main(m) }

// service has a method with one answer and one with many, of texts.
func service(h middlewaretest.Handler) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "test.Agents",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Call",
			Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
				req := new(wrapperspb.StringValue)
				if err := decode(req); err != nil {
					return nil, err
				}
				return intercept(ctx, req, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Agents/Call"}, func(ctx context.Context, req any) (any, error) {
					return wrapperspb.String(h(middlewaretest.Exchange{Context: ctx, ID: req.(*wrapperspb.StringValue).Value})), nil
				})
			},
		}},
		Streams: []grpc.StreamDesc{{
			StreamName: "Stream", ServerStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error {
				h(middlewaretest.Exchange{
					Context: s.Context(), ID: idOf(s.Context()),
					Send: func(text string) error { return s.SendMsg(wrapperspb.String(text)) },
				})
				return nil
			},
		}},
	}
}

// idOf is where a stream has its entity.
func idOf(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return md["id"][0]
}

func serve(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
	t.Helper()
	entity := middleware.Entity(middlewaretest.Agents, "id")
	lock, err := grpcv1.New(s.Config, func(ctx context.Context, _ string, req any) (namespace.Key, error) {
		if msg, ok := req.(*wrapperspb.StringValue); ok {
			return s.Key(entity(msg.Value))
		}
		return s.Key(entity(idOf(ctx)))
	})
	require.NoError(t, err)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
		defer func() {
			if value := recover(); value != nil {
				s.Panicked(value)
				err = status.Error(codes.Internal, "panic")
			}
		}()
		return next(ctx, req)
	}, lock.Unary), grpc.StreamInterceptor(lock.Stream))
	server.RegisterService(service(s.Handler), nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, conn.Close())
		server.Stop()
		assert.NoError(t, <-ended)
	})
	return middlewaretest.Server{
		Call: func(ctx context.Context, id string) (middlewaretest.Answer, error) {
			reply := new(wrapperspb.StringValue)
			err := conn.Invoke(ctx, "/test.Agents/Call", wrapperspb.String(id), reply)
			if ctx.Err() != nil {
				return middlewaretest.Answer{}, err
			}
			a := answer(err)
			a.Text = reply.Value
			return a, nil
		},
		Stream: func(ctx context.Context, id string) (func() (string, *middlewaretest.Answer), error) {
			stream, err := conn.NewStream(metadata.AppendToOutgoingContext(ctx, "id", id), &grpc.StreamDesc{ServerStreams: true}, "/test.Agents/Stream")
			if err != nil {
				return nil, err
			}
			return func() (string, *middlewaretest.Answer) {
				reply := new(wrapperspb.StringValue)
				switch err := stream.RecvMsg(reply); {
				case err == nil:
					return reply.Value, nil
				case errors.Is(err, io.EOF):
					return "", &middlewaretest.Answer{}
				default:
					a := answer(err)
					return "", &a
				}
			}, stream.CloseSend()
		},
	}
}

// answer reads a status.
func answer(err error) (a middlewaretest.Answer) {
	s := status.Convert(err)
	a.Status = int(s.Code())
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			a.Type = d.Metadata["type"]
			pid, _ := strconv.ParseUint(d.Metadata["holder_pid"], 10, 32)
			a.HolderPID = uint32(pid)
		case *errdetails.RetryInfo:
			a.RetryAfter = d.RetryDelay.AsDuration()
		}
	}
	return a
}

func TestGRPCConforms(t *testing.T) {
	t.Parallel()
	middlewaretest.Run(t, middlewaretest.Framework{Serve: serve, RPC: true})
}

func TestABadConfigIsRefused(t *testing.T) {
	t.Parallel()
	_, err := grpcv1.New(middleware.Config{}, nil)
	assert.ErrorContains(t, err, "Locker is nil")
	_, err = grpcv1.New(middleware.Config{Locker: new(advisory.Locker)}, nil)
	assert.ErrorContains(t, err, "key is nil")
}

func ExampleNew() {
	// In a program, advisory.Open(ctx, advisory.Config{DSN: dsn}).
	locker, err := advisorytest.NewServer().Open(advisory.Config{})
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	agents := namespace.Must(1, "agent")
	lock, err := grpcv1.New(middleware.Config{Locker: locker, Skip: true}, func(_ context.Context, method string, req any) (namespace.Key, error) {
		if method == "/acme.Agents/Stop" {
			return agents.Text(req.(*wrapperspb.StringValue).Value)
		}
		return namespace.Key{}, middleware.ErrNoLock
	})
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(lock.Unary), grpc.StreamInterceptor(lock.Stream))
	defer server.Stop()

	// A job holds agent 42 while a call for it comes in.
	err = locker.Do(context.Background(), agents.ID(42), func(context.Context) error {
		_, err := lock.Unary(context.Background(), wrapperspb.String("42"), &grpc.UnaryServerInfo{FullMethod: "/acme.Agents/Stop"}, nil)
		return err
	})
	fmt.Println(status.Code(err))
	// Output: Aborted
}
