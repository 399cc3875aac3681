package system

import (
	"context"
	"strconv"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// redislockClient takes a lock with one SET NX in a script and releases it with another script.
// A client that finds a lock held asks again after retryAfter.
type redislockClient struct {
	env    Env
	redis  *redis.Client
	client *redislock.Client
}

// retryAfter is the pause before a waiter for a lock in Redis asks again. The libraries'
// defaults (no retry, and 50 to 250 ms) do worse here.
const retryAfter = time.Millisecond

func openRedislock(_ context.Context, env Env) (Client, error) {
	client := dialRedis(env)
	return &redislockClient{env, client, redislock.New(client)}, nil
}

func (r *redislockClient) obtain(ctx context.Context, key uint32) (*redislock.Lock, error) {
	return r.client.Obtain(ctx, strconv.FormatUint(uint64(key), 10), leaseTime, &redislock.Options{RetryStrategy: redislock.LinearBackoff(retryAfter)})
}

func (r *redislockClient) Cycle(ctx context.Context, _ int, key uint32, held func()) error {
	lock, err := r.obtain(ctx, key)
	if err != nil {
		return err
	}
	held()
	return lock.Release(context.WithoutCancel(ctx))
}

// obtained is a lock of redislock.
type obtained struct{ *redislock.Lock }

func (r *redislockClient) Take(ctx context.Context, key uint32) (Held, error) {
	lock, err := r.obtain(ctx, key)
	if err != nil {
		return nil, err
	}
	return obtained{lock}, nil
}

func (o obtained) Release() error { return o.Lock.Release(context.Background()) }

func (r *redislockClient) Footprint(ctx context.Context) (Footprint, error) {
	return redisFootprint(ctx, r.redis, r.env.Tag)
}

func (r *redislockClient) Close() error { return r.redis.Close() }
