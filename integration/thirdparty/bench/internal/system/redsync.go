package system

import (
	"context"
	"math"
	"strconv"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncClient is Redlock on one server.
type redsyncClient struct {
	env   Env
	redis *redis.Client
	sync  *redsync.Redsync
}

func openRedsync(_ context.Context, env Env) (Client, error) {
	client := dialRedis(env)
	return &redsyncClient{env, client, redsync.New(goredis.NewPool(client))}, nil
}

func (r *redsyncClient) lock(ctx context.Context, key uint32) (*redsync.Mutex, error) {
	m := r.sync.NewMutex(strconv.FormatUint(uint64(key), 10), redsync.WithExpiry(leaseTime),
		redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(retryAfter))
	return m, m.LockContext(ctx)
}

func (r *redsyncClient) Cycle(ctx context.Context, _ int, key uint32, held func()) error {
	m, err := r.lock(ctx, key)
	if err != nil {
		return err
	}
	held()
	_, err = m.UnlockContext(context.WithoutCancel(ctx))
	return err
}

// mutex is a lock of redsync.
type mutex struct{ *redsync.Mutex }

func (r *redsyncClient) Take(ctx context.Context, key uint32) (Held, error) {
	m, err := r.lock(ctx, key)
	if err != nil {
		return nil, err
	}
	return mutex{m}, nil
}

func (m mutex) Release() error {
	_, err := m.Unlock()
	return err
}

func (r *redsyncClient) Footprint(ctx context.Context) (Footprint, error) {
	return redisFootprint(ctx, r.redis, r.env.Tag)
}

func (r *redsyncClient) Close() error { return r.redis.Close() }
