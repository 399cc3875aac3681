package electionkeys_test

import (
	_ "embed"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pglatch/pglatch/internal/electionkeys"
	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/namespace"
)

//go:embed testdata/elections.json
var electionsJSON []byte

// An electionVector is one frozen derivation; testdata/elections.py computes them in Python.
type electionVector struct {
	ClassID  uint32
	ObjID    uint32
	ObjSubID uint16
	Election uint32 // the class of the companion keys
	Guard    uint32 // the objid of the guards' lock
}

func TestElectionsAreThoseOfTheFrozenVectors(t *testing.T) {
	t.Parallel()
	var vs []electionVector
	require.NoError(t, json.Unmarshal(electionsJSON, &vs))
	require.NotEmpty(t, vs)
	classes, guards := map[uint32]int{}, map[namespace.Tag]bool{}
	for _, v := range vs {
		tag := namespace.Tag{ClassID: v.ClassID, ObjID: v.ObjID, ObjSubID: v.ObjSubID}
		election := electionkeys.Of(tag)
		assert.Equal(t, v.Election, election.ClassID(), "%v: %s", tag, frozen.Message)
		assert.Equal(t, namespace.Tag{ClassID: v.Election, ObjID: v.Guard, ObjSubID: namespace.SingleForm}, election.Guard(), "%v", tag)
		assert.False(t, guards[election.Guard()])
		classes[v.Election]++
		guards[election.Guard()] = true
	}
	// Two of them share a class by chance, and no guard.
	shared := electionkeys.Of(namespace.Pair(1, 29674).Tag()).ClassID()
	assert.Equal(t, shared, electionkeys.Of(namespace.Pair(1, 32989).Tag()).ClassID())
	assert.Equal(t, 2, classes[shared])
	assert.Len(t, classes, len(vs)-1)
}

func TestCompanionKeysOfAnElectionAreNegativeAndDiffer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		election := electionkeys.Of(namespace.SingleRaw(rapid.Int64().Draw(t, "key")).Tag())
		r := rapid.Uint32Min(1).Draw(t, "r")
		guard, incarnation := election.Guard(), election.Incarnation(r)
		for _, tag := range []namespace.Tag{guard, incarnation} {
			k, ok := tag.Single()
			assert.True(t, ok)
			assert.Negative(t, k)
			_, err := namespace.Single(k)
			assert.ErrorIs(t, err, namespace.ErrInvalidKey)
			assert.Equal(t, election.ClassID(), tag.ClassID)
		}
		assert.NotEqual(t, incarnation, election.Incarnation(r-1))
	})
}

func TestALabelDoesNotChangeAnElection(t *testing.T) {
	t.Parallel()
	assert.Equal(t, electionkeys.Of(namespace.Pair(1, 42).Tag()), electionkeys.Of(namespace.Must(1, "agent").ID(42).Tag()))
}
