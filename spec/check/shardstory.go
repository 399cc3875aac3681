package check

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A storyStep is a line of spec/shards.pml, as its printf has it, and what the table does then.
type storyStep struct {
	line *regexp.Regexp
	does func(t *shardTable, node string, words []string) (wrong string)
}

// ShardStory replays lines that spec/shards.pml printed, from a random walk or from a counter-example. The error names the first
// line that the table does not allow.
func ShardStory(lines []string) error {
	t := newShardTable()
	for i, line := range lines {
		wrong := "the model does not print this"
		for _, s := range shardSteps {
			if words := s.line.FindStringSubmatch(line); words != nil {
				wrong = s.does(t, append(words, "")[1], words[1:])
				break
			}
		}
		if wrong != "" {
			return fmt.Errorf("%w: line %d, %q: %s", ErrRefused, i+1, line, wrong)
		}
	}
	return nil
}

func said(line string, does func(t *shardTable, node string, words []string) string) storyStep {
	return storyStep{regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(line), "%d", `(\d+)`) + "$"), does}
}

// demand returns what is wrong unless a condition holds.
func demand(ok bool, what string) string {
	if ok {
		return ""
	}
	return what
}

// decide notes what a node is going to claim and to give up.
func (t *shardTable) decide(node string, masks []string) string {
	n := t.node(node)
	if !n.step() || !n.idle() {
		return "the node cannot decide now"
	}
	for i, to := range []map[string]bool{n.claims, n.gives} {
		mask, _ := strconv.Atoi(masks[i])
		for shard := range 8 {
			if mask>>shard&1 == 1 {
				to[strconv.Itoa(shard)] = true
			}
		}
	}
	return ""
}

var shardSteps = []storyStep{
	said("node %d: joins", func(t *shardTable, node string, _ []string) string {
		n := t.node(node)
		ok := !n.alive && !t.working(node) && !n.stopped && !n.draining
		n.alive, n.lapsed, n.window = true, false, false
		return demand(ok, "it has joined, is stopped, drains or still works")
	}),
	said("node %d: decides to claim %d and to give up %d (masks)", func(t *shardTable, node string, words []string) string { return t.decide(node, words[1:]) }),
	said("fault: node %d does not see node %d, and decides to claim %d and to give up %d (masks)", func(t *shardTable, node string, words []string) string {
		return t.decide(node, words[2:])
	}),
	said("node %d: claims shard %d", func(t *shardTable, node string, words []string) string {
		n := t.node(node)
		if !n.step() || !n.claims[words[1]] {
			return "the node has not decided so"
		}
		delete(n.claims, words[1])
		return t.claim(node, words[1])
	}),
	said("node %d: cannot claim shard %d", func(t *shardTable, node string, words []string) string {
		n, shard := t.node(node), words[1]
		ok := n.step() && n.claims[shard] && (t.owner[shard] != "" || t.guarded(shard))
		delete(n.claims, shard)
		return demand(ok, "it can, or has not decided so")
	}),
	said("fault: the claim of shard %d by node %d is cancelled after it took effect", func(t *shardTable, shard string, words []string) string {
		n := t.node(words[1])
		if !n.step() || !n.claims[shard] {
			return "the node has not decided so"
		}
		delete(n.claims, shard)
		n.stray[shard] = true
		return t.lock(words[1], shard)
	}),
	said("node %d: its work on shard %d ends", func(t *shardTable, node string, words []string) string {
		if n := t.node(node); !n.step() || !n.gives[words[1]] {
			return "the node has not decided so"
		}
		return t.rest(node, words[1])
	}),
	said("node %d: releases shard %d", func(t *shardTable, node string, words []string) string {
		n := t.node(node)
		if !n.step() || !n.gives[words[1]] {
			return "the node has not decided so"
		}
		delete(n.gives, words[1])
		return t.release(node, words[1])
	}),
	said("node %d: gives back what a cancelled claim left", func(t *shardTable, node string, _ []string) string {
		n := t.node(node)
		ok := n.step() && len(n.stray) > 0
		for shard := range n.stray {
			if t.owner[shard] == node {
				delete(t.owner, shard)
			}
		}
		clear(n.stray)
		return demand(ok, "nothing was cancelled")
	}),
	said("node %d: trusts all members again", func(t *shardTable, node string, _ []string) string {
		return demand(t.node(node).step(), "it is not running")
	}),
	said("node %d: leaves", func(t *shardTable, node string, _ []string) string {
		n := t.node(node)
		ok := n.step() && n.draining && n.idle() && !t.working(node) && !t.owns(node)
		n.alive = false
		return demand(ok, "it has shards, or does not drain")
	}),
	said("node %d: gives up its shards, nobody else is there", func(t *shardTable, node string, _ []string) string {
		n := t.node(node)
		ok := n.step() && n.draining && n.idle() && t.working(node)
		for at := range t.works {
			if at.process == node {
				n.gives[at.key] = true
			}
		}
		return demand(ok, "it has no shards, or does not drain")
	}),
	said("node %d: its session is lost", func(t *shardTable, node string, _ []string) string { return t.lose(node) }),
	said("writer: node %d begins a transaction on shard 0", func(t *shardTable, node string, _ []string) string {
		ok := t.write == "" && t.works[place{node, guardedShard}] && !t.node(node).stopped
		t.write, t.writer, t.later = "claimed", node, false
		return demand(ok, "it does not work on the shard")
	}),
	said("writer: the guard locks the row of the term", func(t *shardTable, _ string, _ []string) string {
		ok := t.write == "claimed" && !t.later && !t.node(t.writer).stopped
		t.write = "guarded"
		return demand(ok, "a later term has begun")
	}),
	said("writer: the guard refuses", func(t *shardTable, _ string, _ []string) string {
		ok := t.write == "claimed" && t.later
		t.write = ""
		return demand(ok, "no later term has begun")
	}),
	said("writer: commits", func(t *shardTable, _ string, _ []string) string {
		ok := t.write == "guarded" && !t.later && !t.hangs && !t.node(t.writer).stopped
		t.write = ""
		return demand(ok, "the transaction is not guarded, or a later term has begun")
	}),
	said("fault: the transaction hangs", func(t *shardTable, _ string, _ []string) string {
		t.hangs = true
		return demand(t.write == "guarded", "there is none")
	}),
	said("server: a claim of shard 0 ends the transaction", func(t *shardTable, _ string, _ []string) string {
		ok := t.write == "guarded" && t.owner[guardedShard] == ""
		t.write, t.hangs = "", false
		return demand(ok, "no claim is blocked")
	}),
	said("server: the lease of node %d is over", func(t *shardTable, node string, _ []string) string {
		n := t.node(node)
		ok := n.alive && n.stopped
		t.endSession(node)
		n.lapsed = true
		return demand(ok, "it is not stopped")
	}),
	said("fault: SIGSTOP for node %d", func(t *shardTable, node string, _ []string) string {
		n := t.node(node)
		ok := n.alive && !n.stopped
		n.stopped = true
		return demand(ok, "it is not running")
	}),
	said("fault: node %d continues", func(t *shardTable, node string, _ []string) string {
		n := t.node(node)
		ok := n.stopped
		n.stopped = false
		for at := range t.works {
			if wrong := t.alone(at.key); wrong != "" {
				return wrong
			}
		}
		return demand(ok, "it is not stopped")
	}),
	said("fault: the session of node %d is terminated", func(t *shardTable, node string, _ []string) string {
		n := t.node(node)
		ok := n.alive
		t.endSession(node)
		n.window = t.working(node)
		return demand(ok, "it has none")
	}),
	said("fault: node %d hangs, but keeps its membership", func(t *shardTable, node string, _ []string) string {
		n := t.node(node)
		ok := n.alive && !n.hung && !t.owns(node)
		n.hung = true
		clear(n.claims)
		return demand(ok, "it owns a shard")
	}),
	said("operator: drains node %d", func(t *shardTable, node string, _ []string) string {
		n := t.node(node)
		ok := n.alive && !n.draining
		n.draining = true
		return demand(ok, "it drains, or is not there")
	}),
	said("operator: starts node %d again", func(t *shardTable, node string, _ []string) string {
		n := t.node(node)
		ok := !n.alive && n.draining && !t.working(node)
		n.draining = false
		return demand(ok, "it was not drained")
	}),
}
