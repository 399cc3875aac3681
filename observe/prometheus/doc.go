// Package prometheus exports metrics of locks, elections, shards, turns and leases to Prometheus.
//
//	metrics := lockmetrics.New() // import lockmetrics "github.com/pglatch/pglatch/observe/prometheus"
//	prometheus.MustRegister(metrics)
//
//	locker, err := advisory.Open(ctx, advisory.Config{DSN: dsn, Tracer: metrics.Tracer()})
//	defer metrics.Watch(elector)()         // an election's
//	defer metrics.WatchShards(node)()      // those of a shards.Node
//	config.Observer = metrics.Turns("chat") // of the turns.Config of a mailbox
//	defer metrics.WatchMailbox(chat, 0)()  // in one process of each mailbox
//	store = metrics.Store(store)           // leases; Client for a lock server's client
//
// prometheus is a separate module, so that programs without metrics do not compile a metrics library.
//
// # What there is
//
// Locks are counted by namespace and never by entity, so there are as many series as namespaces. The namespace of raw
// keys is "(none)".
//
//	pglatch_lock_acquisitions_total{namespace,result}  result: success, held, timeout, canceled, reentrant, deadlock,
//	                                                   pool_exhausted, table_full, unavailable, refused, closed, error
//	pglatch_lock_wait_seconds{namespace}               histogram: from the request to its end; without tries
//	pglatch_lock_hold_seconds{namespace}               histogram: from the grant to the release or the loss
//	pglatch_lock_handovers_total{namespace}            granted inside the process, without a round trip
//	pglatch_lock_losses_total{namespace,reason}        reason: advisory.LossData.Reason
//	pglatch_locks_held{namespace}                      now; pglatch_lock_oldest_hold_seconds: the longest of them
//	pglatch_lock_waiters{namespace}                    now; pglatch_lock_oldest_wait_seconds: the longest of them
//
// Of all Lockers together:
//
//	pglatch_lock_sessions, _sessions_in_use, _sessions_max, _sessions_lost_total
//	pglatch_lock_keys, _keys_max                       entries of the server's lock table, and the Lockers' limit
//	pglatch_lock_statements_total, _pings_total, _wait_steps_total, _skips_total, _reentrant_skips_total, _unreported_total
//
// Elections are counted by name. Each series also has the label database, as in "db-1:5432/shop": the first host of
// the backend's connection string, its port, and the database. It is "" for a backend without a database. The
// connection strings of all nodes of an election must give the same label. Databases behind local poolers with the
// same address share one label. In that case, also group by a label of the targets. The first name is client-go's.
// "pglatch leader run --http" also shows the first two:
//
//	leader_election_master_status{name}                1 if this process leads: by its clock, not by a flag
//	leader_election_transitions_total{name,to}         to: leader, recovered, released, lost
//	leader_election_losses_total{name,reason}          taken: the backend said so; expired: no renewal in time
//	leader_election_state{name,state}                  1 for the state in which the Elector is
//	leader_election_term_era{name}, _term_number{name} the last term in which this process led
//	leader_election_leading_since_timestamp_seconds{name}
//	leader_election_attempt_failures_total{name}       excluding attempts while another node leads
//	leader_election_drains_exceeded_total{name}        work that continued: a successor could overlap with it
//
// Shards, by the name of their group, in this process:
//
//	pglatch_shards_owned{name}, pglatch_shard_sessions{name}, _members{name}  now
//	pglatch_shard_transitions_total{name,to}           to: acquired, released, lost
//	pglatch_shard_moves_total{name}                    given up for an even distribution
//	pglatch_shard_work_failures_total{name}, _given_away_total{name}
//	pglatch_shard_looks_total{name}, _refusals_total{name}, _backend_errors_total{name}
//
// Turns, by mailbox, in this process:
//
//	pglatch_turns_total{mailbox,result}                result: committed, failed, stale
//	pglatch_turn_messages_total{mailbox}               that turns committed
//	pglatch_turn_seconds{mailbox}                      histogram: with the mutex
//
// Mailboxes, across all nodes, from the last look of WatchMailbox. Several processes may watch the same mailbox, so
// use max, not sum:
//
//	pglatch_mailbox_entities{mailbox,state}            state: ready, running, stopped
//	pglatch_mailbox_dead_letters{mailbox}, pglatch_mailbox_nodes{mailbox}, pglatch_mailbox_oldest_ready_seconds{mailbox}
//	pglatch_mailbox_up{mailbox}                        0: the last look failed, and the values are old
//
// Leases, for requests through Store or Client, with the lock server's result names:
//
//	pglatch_lease_requests_total{op,result}, pglatch_lease_request_seconds{op}, pglatch_lease_losses_total
//
// A lock server shows its own at /metrics: see lease/leaseserver.
//
// # Several databases in one process
//
// Give each database Metrics of its own, and one of them the elections. The alert rules and the dashboard aggregate by
// the label database, and work without it too:
//
//	registry.MustRegister(shop.Elections()) // shop.Watch is called for the elections of all databases
//	for database, metrics := range map[string]*lockmetrics.Metrics{"db-1:5432/shop": shop, "db-2:5432/audit": audit} {
//		prometheus.WrapRegistererWith(prometheus.Labels{"database": database}, registry).MustRegister(metrics.ExceptElections())
//	}
//
// # What it costs
//
// With the Tracer, a cycle of lock and unlock took 0.2 to 0.6 µs longer, on a server in memory. A scrape walks through
// all held locks: 0.05 ms without any, 0.5 ms with 1,000, 60 ms with 100,000 (go test -bench ., two shared cores).
//
// # Alerts and a dashboard
//
// rules.yml for Prometheus and dashboard.json for Grafana are beside this file, and available as Rules and Dashboard.
// Each alert's annotation says what to do. A test runs a real Prometheus: it ends a real leader's session, and holds
// the election's lock so that nobody leads.
//
//	sum by (name, database) (leader_election_master_status) != 1
//
// is true for a moment in each hand-over, and for the duration of a fail-over. The rules therefore wait for a minute:
// LeaseDuration + a wait step + Retry's delay, 18 s with the defaults, and two scrapes of 15 s. With a longer lease or
// scrape interval, use a longer wait. The rules do not see a process that is not scraped: if none is scraped, none is
// counted. So alert on "up", too.
package prometheus
