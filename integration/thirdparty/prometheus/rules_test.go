package prometheus

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Series in steps of 15 s, as Prometheus' own unit tests of rules write them, and the alerts that
// fire at a time.
func TestEachAlertFiresForWhatItIsAboutAndForNothingElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		series string
		fires  map[time.Duration][]string
	}{
		"one leads, and hands over within two scrapes": {
			`leader_election_master_status{name="a",instance="1"} 1x20 0x20
			 leader_election_master_status{name="a",instance="2"} 0x22 1x18`,
			map[time.Duration][]string{5 * time.Minute: nil, 5*time.Minute + 45*time.Second: nil, 10 * time.Minute: nil},
		},
		"nobody leads": {
			`leader_election_master_status{name="a",instance="1"} 1 0x40
			 leader_election_master_status{name="a",instance="2"} 0x41
			 leader_election_master_status{name="b",instance="2"} 1x41`,
			map[time.Duration][]string{time.Minute: nil, 2 * time.Minute: {"PglatchNobodyLeads"}},
		},
		"nobody leads in one of two databases": {
			`leader_election_master_status{name="a",database="prod/shop",instance="1"} 1 0x40
			 leader_election_master_status{name="a",database="staging/shop",instance="2"} 1x41`,
			map[time.Duration][]string{time.Minute: nil, 2 * time.Minute: {"PglatchNobodyLeads"}},
		},
		"one leads in each of two databases": {
			`leader_election_master_status{name="a",database="prod/shop",instance="1"} 1x41
			 leader_election_master_status{name="a",database="staging/shop",instance="2"} 1x41`,
			map[time.Duration][]string{2 * time.Minute: nil, 10 * time.Minute: nil},
		},
		"leadership is released now and then in each of two databases": {
			`leader_election_transitions_total{name="a",database="prod/shop",instance="1",to="leader"} 0 1 2 2 3 3x40
			 leader_election_transitions_total{name="a",database="staging/shop",instance="1",to="leader"} 0 1 2 2 3 3x40`,
			map[time.Duration][]string{2 * time.Minute: nil},
		},
		"two lead": {
			`leader_election_master_status{name="a",instance="1"} 1x40
			 leader_election_master_status{name="a",instance="2"} 0 1x39`,
			map[time.Duration][]string{time.Minute: nil, 2 * time.Minute: {"PglatchTwoLead"}},
		},
		"leadership is lost once": {
			`leader_election_losses_total{name="a",instance="1",reason="taken"} 0x8 1x60`,
			map[time.Duration][]string{time.Minute: nil, 3 * time.Minute: {"PglatchLeadershipLost"}, 14 * time.Minute: nil},
		},
		"leadership is released again and again": {
			`leader_election_transitions_total{name="a",instance="1",to="leader"} 0+1x40
			 leader_election_transitions_total{name="a",instance="1",to="released"} 0+1x40`,
			map[time.Duration][]string{5 * time.Minute: {"PglatchLeadershipFlaps"}},
		},
		"the monitor may not read a table, and in another database a migration locks one": {
			`pglatch_tables_unread{database="prod/shop",instance="1"} 1x80
			 pglatch_tables_unread{database="staging/shop",instance="1"} 0x4 1x12 0x60`,
			map[time.Duration][]string{4 * time.Minute: nil, 6 * time.Minute: {"PglatchTablesUnread"}},
		},
		"a migration locks a table": {
			`pglatch_tables_unread{database="staging/shop",instance="1"} 0x4 1x12 0x60`,
			map[time.Duration][]string{4 * time.Minute: nil, 6 * time.Minute: nil, 12 * time.Minute: nil},
		},
		"a node cannot take part": {
			`leader_election_attempt_failures_total{name="a",instance="1"} 0+7x80`,
			map[time.Duration][]string{4 * time.Minute: nil, 11 * time.Minute: {"PglatchNodeCannotLead"}},
		},
		"work goes on": {
			`leader_election_drains_exceeded_total{name="a",instance="1"} 0x8 1x60`,
			map[time.Duration][]string{time.Minute: nil, 3 * time.Minute: {"PglatchWorkOutlastsLeadership"}},
		},
		"a lock is lost, others when their Locker closes": {
			`pglatch_lock_losses_total{namespace="order",instance="1",reason="not_held"} 0x20 1x60
			 pglatch_lock_losses_total{namespace="order",instance="2",reason="closed"} 0x4 3x60`,
			map[time.Duration][]string{3 * time.Minute: nil, 6 * time.Minute: {"PglatchLockLost"}},
		},
		"a request waits for long": {
			`pglatch_lock_oldest_wait_seconds{namespace="order",instance="1"} 0+15x40`,
			map[time.Duration][]string{time.Minute: nil, 3 * time.Minute: {"PglatchLockWaitsLong"}},
		},
		"a lock is held for long": {
			`pglatch_lock_oldest_hold_seconds{namespace="order",instance="1"} 0+15x100`,
			map[time.Duration][]string{15 * time.Minute: nil, 16 * time.Minute: {"PglatchLockHeldLong"}},
		},
		"one request of ten runs out of time": {
			`pglatch_lock_acquisitions_total{namespace="order",result="success",instance="1"} 0+9x80
			 pglatch_lock_acquisitions_total{namespace="order",result="timeout",instance="1"} 0+1x80`,
			map[time.Duration][]string{4 * time.Minute: nil, 11 * time.Minute: {"PglatchLockWaitsTimeOut"}},
		},
		"one request of a hundred runs out of time": {
			`pglatch_lock_acquisitions_total{namespace="order",result="success",instance="1"} 0+99x80
			 pglatch_lock_acquisitions_total{namespace="order",result="timeout",instance="1"} 0+1x80`,
			map[time.Duration][]string{11 * time.Minute: nil},
		},
		"the pool is full": {
			`pglatch_lock_sessions_in_use{instance="1"} 10x40
			 pglatch_lock_sessions_max{instance="1"} 10x40
			 pglatch_lock_keys{instance="1"} 10x40
			 pglatch_lock_keys_max{instance="1"} 10x40`,
			map[time.Duration][]string{4 * time.Minute: nil, 6 * time.Minute: {"PglatchLockPoolFull"}},
		},
		"the lock table is full": {
			`pglatch_lock_acquisitions_total{namespace="order",result="table_full",instance="1"} 0x20 1x40`,
			map[time.Duration][]string{4 * time.Minute: nil, 6 * time.Minute: {"PglatchLockTableFull"}},
		},
		"the Locker has most of its locks": {
			`pglatch_lock_sessions_in_use{instance="1"} 2x40
			 pglatch_lock_sessions_max{instance="1"} 10x40
			 pglatch_lock_keys{instance="1"} 80x40
			 pglatch_lock_keys_max{instance="1"} 100x40`,
			map[time.Duration][]string{4 * time.Minute: nil, 6 * time.Minute: {"PglatchLockTableNearlyFull"}},
		},
		"a mailbox is served, and an entity waits for a moment": {
			`pglatch_mailbox_nodes{mailbox="chat",instance="1"} 2x60
			 pglatch_mailbox_entities{mailbox="chat",state="ready",instance="1"} 5x60
			 pglatch_mailbox_entities{mailbox="chat",state="stopped",instance="1"} 0x60
			 pglatch_mailbox_dead_letters{mailbox="chat",instance="1"} 3x60
			 pglatch_mailbox_oldest_ready_seconds{mailbox="chat",instance="1"} 0 30 61 0x60`,
			map[time.Duration][]string{time.Minute: nil, 5 * time.Minute: nil, 10 * time.Minute: nil},
		},
		"entities wait for long": {
			`pglatch_mailbox_nodes{mailbox="chat",instance="1"} 2x60
			 pglatch_mailbox_oldest_ready_seconds{mailbox="chat",instance="1"} 0+15x60`,
			map[time.Duration][]string{time.Minute: nil, 3 * time.Minute: {"PglatchMailboxLate"}},
		},
		"no node serves a mailbox": {
			`pglatch_mailbox_nodes{mailbox="chat",instance="1"} 0x60
			 pglatch_mailbox_entities{mailbox="chat",state="ready",instance="1"} 0x8 1x60
			 pglatch_mailbox_nodes{mailbox="idle",instance="1"} 0x60
			 pglatch_mailbox_entities{mailbox="idle",state="ready",instance="1"} 0x60`,
			map[time.Duration][]string{2 * time.Minute: nil, 4 * time.Minute: {"PglatchMailboxNotServed"}},
		},
		"a dead letter stops an entity": {
			`pglatch_mailbox_entities{mailbox="chat",state="stopped",instance="1"} 0x20 1x20 0x60
			 pglatch_mailbox_dead_letters{mailbox="chat",instance="1"} 0x20 1x80`,
			map[time.Duration][]string{4 * time.Minute: nil, 6 * time.Minute: {"PglatchDeadLetters", "PglatchEntityStopped"}, 12 * time.Minute: {"PglatchDeadLetters"}, 17 * time.Minute: nil},
		},
		"the lock server is without its store": {
			`lock_store_up{instance="1"} 1x4 0x40`,
			map[time.Duration][]string{time.Minute: nil, 3 * time.Minute: {"PglatchLockStoreDown"}},
		},
		"leases expire": {
			`lock_expired_total{instance="1"} 0x8 1x40
			 pglatch_lease_losses_total{instance="2"} 0x8 1x40`,
			map[time.Duration][]string{time.Minute: nil, 3 * time.Minute: {"PglatchLeaseLost", "PglatchLeasesExpire"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := promqltest.LoadedStorage(t, "load 15s\n"+c.series)
			t.Cleanup(func() { assert.NoError(t, db.Close()) })
			j := newJudge(t, db, "")
			for at := time.Duration(0); at <= 17*time.Minute; at += 15 * time.Second {
				var fires []string
				for alert, state := range j.look(time.UnixMilli(0).Add(at)) {
					if state == rules.StateFiring {
						fires = append(fires, alert)
					}
				}
				slices.Sort(fires)
				if want, ok := c.fires[at]; ok {
					assert.Equal(t, want, fires, "after %v", at)
				}
			}
		})
	}
}

// A masked alert is a fault in production, as its series show it, and the same series of a healthy, busy staging.
type masked struct {
	production, staging string
	also                []string // alerts that the fault raises too
}

// Labels of targets stand in for those that a Prometheus of two environments has.
var environments = map[string]string{
	"production": `job="production",instance="1",database="prod/shop"`,
	"staging":    `job="staging",instance="9",database="staging/shop"`,
}

var maskedAlerts = map[string]masked{
	"PglatchNobodyLeads":            {`leader_election_master_status{name="a",$} 1 0x80`, `leader_election_master_status{name="a",$} 1x81`, nil},
	"PglatchTwoLead":                {`leader_election_master_status{name="a",$} 2x81`, `leader_election_master_status{name="a",$} 1x81`, nil},
	"PglatchLeadershipLost":         {`leader_election_losses_total{name="a",reason="taken",$} 0x8 1x80`, `leader_election_losses_total{name="a",reason="taken",$} 0x88`, nil},
	"PglatchLeadershipFlaps":        {`leader_election_transitions_total{name="a",to="leader",$} 0+1x80`, `leader_election_transitions_total{name="a",to="leader",$} 1x80`, nil},
	"PglatchNodeCannotLead":         {`leader_election_attempt_failures_total{name="a",$} 0+7x80`, `leader_election_attempt_failures_total{name="a",$} 0x80`, nil},
	"PglatchWorkOutlastsLeadership": {`leader_election_drains_exceeded_total{name="a",$} 0x8 1x80`, `leader_election_drains_exceeded_total{name="a",$} 0x88`, nil},
	"PglatchLockLost":               {`pglatch_lock_losses_total{namespace="order",reason="not_held",$} 0x8 1x80`, `pglatch_lock_losses_total{namespace="order",reason="not_held",$} 0x88`, nil},
	"PglatchLockWaitsLong":          {`pglatch_lock_oldest_wait_seconds{namespace="order",$} 0+15x80`, `pglatch_lock_oldest_wait_seconds{namespace="order",$} 0x80`, nil},
	"PglatchLockHeldLong":           {`pglatch_lock_oldest_hold_seconds{namespace="order",$} 900+15x80`, `pglatch_lock_oldest_hold_seconds{namespace="order",$} 0x80`, nil},
	"PglatchLockWaitsTimeOut": {
		`pglatch_lock_acquisitions_total{namespace="order",result="success",$} 0+9x80
		 pglatch_lock_acquisitions_total{namespace="order",result="timeout",$} 0+1x80`,
		`pglatch_lock_acquisitions_total{namespace="order",result="success",$} 0+9000x80
		 pglatch_lock_acquisitions_total{namespace="order",result="timeout",$} 0x80`, nil,
	},
	"PglatchLockPoolFull": {
		`pglatch_lock_sessions_in_use{$} 10x80
		 pglatch_lock_sessions_max{$} 10x80`,
		`pglatch_lock_sessions_in_use{$} 1x80
		 pglatch_lock_sessions_max{$} 1000x80`, nil,
	},
	"PglatchLockTableFull": {`pglatch_lock_acquisitions_total{namespace="order",result="table_full",$} 0x8 1+1x80`, `pglatch_lock_acquisitions_total{namespace="order",result="table_full",$} 0x88`, nil},
	"PglatchLockTableNearlyFull": {
		`pglatch_lock_keys{$} 80x80
		 pglatch_lock_keys_max{$} 100x80
		 pglatch_lock_sessions_max{$} 10x80`,
		`pglatch_lock_keys{$} 1x80
		 pglatch_lock_keys_max{$} 100000x80
		 pglatch_lock_sessions_max{$} 10x80`, nil,
	},
	"PglatchLockStoreDown":   {`lock_store_up{$} 0x80`, `lock_store_up{$} 1x80`, nil},
	"PglatchLeasesExpire":    {`lock_expired_total{$} 0x8 1x80`, `lock_expired_total{$} 0x88`, nil},
	"PglatchLeaseLost":       {`pglatch_lease_losses_total{$} 0x8 1x80`, `pglatch_lease_losses_total{$} 0x88`, nil},
	"PglatchLockServerAway":  {`pglatch_lock_server_up{server="locks",$} 0x80`, `pglatch_lock_server_up{server="locks",$} 1x80`, nil},
	"PglatchMonitorBlind":    {`pglatch_monitor_up{$} 0x80`, `pglatch_monitor_up{$} 1x80`, nil},
	"PglatchTablesUnread":    {`pglatch_tables_unread{$} 1x80`, `pglatch_tables_unread{$} 0x80`, nil},
	"PglatchVerdictCritical": {`pglatch_verdict{name="deadlock",severity="critical",$} 1x80`, `pglatch_verdict{name="deadlock",severity="critical",$} 0x80`, nil},
	"PglatchVerdictWarning":  {`pglatch_verdict{name="held-long",severity="warning",$} 1x80`, `pglatch_verdict{name="held-long",severity="warning",$} 0x80`, nil},
	"PglatchShardsFree":      {`pglatch_shards_free{group="tenant=7",$} 3x80`, `pglatch_shards_free{group="tenant=7",$} 0x80`, nil},
	"PglatchTicksMissed":     {`pglatch_ticks_missed{job_name="report",$} 0x8 0+1x80`, `pglatch_ticks_missed{job_name="report",$} 0x88`, nil},
	"PglatchMailboxLate":     {`pglatch_mailbox_oldest_ready_seconds{mailbox="chat",$} 0+15x80`, `pglatch_mailbox_oldest_ready_seconds{mailbox="chat",$} 0x80`, nil},
	"PglatchMailboxNotServed": {
		`pglatch_mailbox_nodes{mailbox="chat",$} 0x80
		 pglatch_mailbox_entities{mailbox="chat",state="ready",$} 1x80`,
		`pglatch_mailbox_nodes{mailbox="chat",$} 3x80
		 pglatch_mailbox_entities{mailbox="chat",state="ready",$} 1x80`, nil,
	},
	"PglatchEntityStopped": {`pglatch_mailbox_entities{mailbox="chat",state="stopped",$} 1x80`, `pglatch_mailbox_entities{mailbox="chat",state="stopped",$} 0x80`, nil},
	"PglatchDeadLetters":   {`pglatch_mailbox_dead_letters{mailbox="chat",$} 0x8 1x80`, `pglatch_mailbox_dead_letters{mailbox="chat",$} 0x88`, nil},
}

// Two environments have the same names. What is well in one must not hide what is wrong in the other, nor be blamed.
func TestAHealthyNeighbourMasksNoAlert(t *testing.T) {
	t.Parallel()
	in := func(series, environment string) string {
		return strings.ReplaceAll(series, "$", environments[environment])
	}
	fires := func(t *testing.T, series string) []string {
		t.Helper()
		db := promqltest.LoadedStorage(t, "load 15s\n"+series)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		j := newJudge(t, db, "")
		found := map[string]bool{}
		for at := time.Duration(0); at <= 15*time.Minute; at += 30 * time.Second {
			for alert, state := range j.look(time.UnixMilli(0).Add(at)) {
				found[alert] = found[alert] || state == rules.StateFiring
			}
		}
		var all []string
		for alert, fired := range found {
			if fired {
				all = append(all, alert)
			}
		}
		slices.Sort(all)
		return all
	}
	for alert, m := range maskedAlerts {
		t.Run(alert, func(t *testing.T) {
			t.Parallel()
			want := append([]string{alert}, m.also...)
			slices.Sort(want)
			assert.Equal(t, want, fires(t, in(m.production, "production")+"\n"+in(m.staging, "staging")))
			assert.Empty(t, fires(t, in(m.staging, "production")+"\n"+in(m.staging, "staging")), "control: both are well")
		})
	}
	all := newJudge(t, promqltest.LoadedStorage(t, "load 15s"), "").alerts()
	require.NotEmpty(t, all)
	for _, alert := range all {
		assert.Contains(t, maskedAlerts, alert, "give it a neighbour")
	}
}

// alerts returns the names of all rules.
func (j *judge) alerts() (all []string) {
	for _, g := range j.groups {
		for _, r := range g.Rules() {
			all = append(all, r.Name())
		}
	}
	return all
}
