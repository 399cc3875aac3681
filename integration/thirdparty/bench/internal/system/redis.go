package system

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// retryAfter is the pause before a waiter for a lock in Redis asks again. The libraries'
// defaults (no retry, and 50 to 250 ms) do worse here.
const retryAfter = time.Millisecond

// openRedislock opens a client that takes a lock with one SET NX in a script and releases it with
// another script. A client that finds a lock held asks again after retryAfter.
func openRedislock(_ context.Context, env Env) (Client, error) {
	client := dialRedis(env)
	locks := redislock.New(client)
	return redisPeer(env, client, func(ctx context.Context, _ int, key uint32) (release, error) {
		lock, err := locks.Obtain(ctx, strconv.FormatUint(uint64(key), 10), leaseTime, &redislock.Options{RetryStrategy: redislock.LinearBackoff(retryAfter)})
		return lock.Release, err
	}), nil
}

// openRedsync opens Redlock on one server.
func openRedsync(_ context.Context, env Env) (Client, error) {
	client := dialRedis(env)
	locks := redsync.New(goredis.NewPool(client))
	return redisPeer(env, client, func(ctx context.Context, _ int, key uint32) (release, error) {
		m := locks.NewMutex(strconv.FormatUint(uint64(key), 10), redsync.WithExpiry(leaseTime),
			redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(retryAfter))
		return func(ctx context.Context) error {
			_, err := m.UnlockContext(ctx)
			return err
		}, m.LockContext(ctx)
	}), nil
}

// dialRedis creates the client that both Redis locks use.
func dialRedis(env Env) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: env.Addresses[Redis], ClientName: env.Tag, PoolSize: env.Conns})
}

// redisPeer counts the client's connections by their name.
func redisPeer(env Env, client *redis.Client, take func(context.Context, int, uint32) (release, error)) Client {
	footprint := func(ctx context.Context) (Footprint, error) {
		list, err := client.ClientList(ctx).Result()
		if err != nil {
			return Footprint{}, err
		}
		info, err := client.Info(ctx, "server").Result()
		if err != nil {
			return Footprint{}, err
		}
		_, rest, _ := strings.Cut(info, "process_id:")
		digits, _, _ := strings.Cut(rest, "\r\n")
		pid, err := strconv.Atoi(digits)
		if err != nil {
			return Footprint{}, fmt.Errorf("INFO: %w", err)
		}
		return Footprint{Connections: strings.Count(list, " name="+env.Tag+" "), PIDs: []int{pid}}, nil
	}
	return &peer{take, footprint, client.Close}
}
