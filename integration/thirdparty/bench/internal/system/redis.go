package system

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// dialRedis creates the client that both Redis locks use.
func dialRedis(env Env) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: env.Addresses[Redis], ClientName: env.Tag, PoolSize: env.Conns})
}

// redisFootprint counts a client's connections by their name.
func redisFootprint(ctx context.Context, client *redis.Client, tag string) (Footprint, error) {
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
	return Footprint{Connections: strings.Count(list, " name="+tag+" "), PIDs: []int{pid}}, nil
}
