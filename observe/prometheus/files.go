package prometheus

import _ "embed"

var (
	//go:embed rules.yml
	rules string
	//go:embed dashboard.json
	dashboard string
)

// Rules returns the alert rules, a rule file of Prometheus.
func Rules() string { return rules }

// Dashboard returns the dashboard, for Grafana to import.
func Dashboard() string { return dashboard }
