package scheduler

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/services"
)

// A Node is one process of the program. Call Close when it is no longer needed.
type Node struct {
	config   Config
	identity string
	pool     *pgxpool.Pool
	elector  *leader.Elector
	services *services.Group
}

// Open connects, creates missing tables, checks Config.Mount, and returns a Node that does
// nothing yet: see Serve. ctx bounds only this call. Any number of nodes may open at once on
// one database.
func Open(ctx context.Context, config Config) (*Node, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{config: config, identity: config.identity()}
	work, err := pgxpool.ParseConfig(config.DSN)
	if err != nil {
		return nil, fmt.Errorf("scheduler: DSN: %w", err)
	}
	work.MaxConns = WorkConns
	work.ConnConfig.RuntimeParams["application_name"] = n.identity + " work"
	if n.pool, err = pgxpool.NewWithConfig(ctx, work); err != nil {
		return nil, fmt.Errorf("scheduler: work pool: %w", err)
	}
	if err := createSchema(ctx, n.pool); err != nil {
		n.Close()
		return nil, err
	}
	if err := config.checkMount(ctx); err != nil { // before the node could lead
		n.Close()
		return nil, err
	}
	if err := n.standForElection(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Identity returns the name of this process among the nodes.
func (n *Node) Identity() string { return n.identity }

// Elector returns the node's Elector, which reports its leadership.
func (n *Node) Elector() *leader.Elector { return n.elector }

// Close closes every connection. Serve must have returned.
func (n *Node) Close() { n.pool.Close() }
