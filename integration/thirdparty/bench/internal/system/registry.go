package system

// The names of systems that the goals refer to.
const (
	HandWritten  = "handwritten"
	RedisLock    = "redislock"
	PGBench      = "pgbench"
	Dedicated    = "pglatch"
	Multiplexed1 = "pglatch-mux1"
	Multiplexed2 = "pglatch-mux2"
	Ceiling      = "ceiling"
)

// All returns the systems, in the order of the tables.
func All() []System {
	return append([]System{
		{Name: HandWritten, Title: "by hand: pgxpool, `pg_advisory_lock`", Needs: Postgres, PerLock: true, Open: openHandWritten},
		{Name: "database-sql", Title: "by hand: database/sql, one connection", Needs: Postgres, Stock: "one connection holds one lock", Open: openDatabaseSQL},
		{Name: "pglock", Title: "cirello.io/pglock", Needs: Postgres, Open: openPglock},
		{Name: RedisLock, Title: "bsm/redislock", Needs: Redis, Open: openRedislock},
		{Name: "redsync", Title: "go-redsync/redsync", Needs: Redis, Open: openRedsync},
		{Name: "etcd", Title: "etcd concurrency", Needs: Etcd, Open: etcdOpener(Etcd)},
		{Name: "etcd-nofsync", Title: "etcd concurrency, no fsync", Needs: EtcdNoFsync, Open: etcdOpener(EtcdNoFsync)},
		{Name: PGBench, Title: "pgbench, the same statements", Needs: PGBenchTools, LoadOnly: true, Stock: "it runs loads only", Open: openPGBench},
		{Name: Ceiling, Title: "the ceiling: batches without any guard", Needs: Postgres, LoadOnly: true, Stock: "it runs loads only", Open: openCeiling},
	}, pglatches()...)
}
