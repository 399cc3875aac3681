package connectv1_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/connectv1"
	"github.com/pglatch/pglatch/middleware/middlewaretest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { leak.Main(m) }

type text = wrapperspb.StringValue

// serve speaks one of the protocols that Connect knows.
func serve(protocol ...connect.ClientOption) func(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
	return func(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
		t.Helper()
		entity := middleware.Entity(middlewaretest.Agents, "id")
		lock, err := connectv1.New(s.Config, func(_ context.Context, _ connect.Spec, header http.Header, msg any) (namespace.Key, error) {
			if msg, ok := msg.(*text); ok {
				return s.Key(entity(msg.Value))
			}
			return s.Key(entity(header.Get("Id")))
		})
		require.NoError(t, err)
		locked := connect.WithInterceptors(lock)
		mux := http.NewServeMux()
		mux.Handle("/test.Agents/Call", connect.NewUnaryHandler("/test.Agents/Call",
			func(ctx context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
				return connect.NewResponse(wrapperspb.String(s.Handler(middlewaretest.Exchange{Context: ctx, ID: r.Msg.Value}))), nil
			}, locked))
		mux.Handle("/test.Agents/Stream", connect.NewServerStreamHandler("/test.Agents/Stream",
			func(ctx context.Context, r *connect.Request[text], stream *connect.ServerStream[text]) error {
				s.Handler(middlewaretest.Exchange{Context: ctx, ID: r.Msg.Value, Send: func(t string) error { return stream.Send(wrapperspb.String(t)) }})
				return nil
			}, locked))

		server := s.HTTP(t, mux)
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		client := &http.Client{Transport: transport}
		calls := connect.NewClient[text, text](client, "http://"+server.Address+"/test.Agents/Call", protocol...)
		streams := connect.NewClient[text, text](client, "http://"+server.Address+"/test.Agents/Stream", protocol...)
		return middlewaretest.Server{
			Call: func(ctx context.Context, id string) (middlewaretest.Answer, error) {
				reply, err := calls.CallUnary(ctx, connect.NewRequest(wrapperspb.String(id)))
				if ctx.Err() != nil {
					return middlewaretest.Answer{}, err
				}
				a := answer(err)
				if err == nil {
					a.Text = reply.Msg.Value
				}
				return a, nil
			},
			Stream: func(ctx context.Context, id string) (func() (string, *middlewaretest.Answer), error) {
				req := connect.NewRequest(wrapperspb.String(id))
				req.Header().Set("Id", id)
				stream, err := streams.CallServerStream(ctx, req)
				if err != nil {
					return nil, err
				}
				return func() (string, *middlewaretest.Answer) {
					if stream.Receive() {
						return stream.Msg().Value, nil
					}
					a := answer(stream.Err())
					_ = stream.Close()
					return "", &a
				}, nil
			},
		}
	}
}

// answer reads an error of Connect.
func answer(err error) (a middlewaretest.Answer) {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return a
	}
	a.Status = int(e.Code())
	for _, detail := range e.Details() {
		value, _ := detail.Value()
		switch d := value.(type) {
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

func TestConnectConforms(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string][]connect.ClientOption{
		"connect": nil, "connect as JSON": {connect.WithProtoJSON()}, "gRPC-Web": {connect.WithGRPCWeb()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			middlewaretest.Run(t, middlewaretest.Framework{Serve: serve(protocol...), RPC: true})
		})
	}
}

func open() *advisory.Locker {
	// In a program, advisory.Open(ctx, advisory.Config{DSN: dsn}).
	locker, err := advisorytest.NewServer().Open(advisory.Config{})
	if err != nil {
		panic(err)
	}
	return locker
}

func TestABadConfigIsRefused(t *testing.T) {
	t.Parallel()
	_, err := connectv1.New(middleware.Config{}, nil)
	assert.ErrorContains(t, err, "Locker is nil")
	_, err = connectv1.New(middleware.Config{Locker: new(advisory.Locker)}, nil)
	assert.ErrorContains(t, err, "key is nil")
}

func ExampleNew() {
	locker := open()
	defer locker.Close()
	agents := namespace.Must(1, "agent")
	lock, err := connectv1.New(middleware.Config{Locker: locker, Skip: true},
		func(_ context.Context, spec connect.Spec, _ http.Header, msg any) (namespace.Key, error) {
			if spec.Procedure == "/acme.Agents/Stop" {
				return agents.Text(msg.(*wrapperspb.StringValue).Value)
			}
			return namespace.Key{}, middleware.ErrNoLock
		})
	if err != nil {
		panic(err)
	}
	stop := connect.NewUnaryHandler("/acme.Agents/Stop",
		func(_ context.Context, r *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
			return connect.NewResponse(wrapperspb.String("stopped " + r.Msg.Value)), nil
		}, connect.WithInterceptors(lock))
	fmt.Println(stop != nil)
	// Output: true
}
