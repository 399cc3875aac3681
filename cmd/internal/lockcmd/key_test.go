package lockcmd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/namespace"
)

func TestKeyShowsAllFormsWithoutADatabase(t *testing.T) {
	t.Parallel()
	type document struct {
		Key, Form         string
		ClassID, ObjID    uint32
		ObjSubID          uint16
		Key1, Key2        int32
		Bigint            int64 `json:",string"`
		LockSQL, QuerySQL string
	}
	names := []string{"PGLATCH_NAMESPACES=agent=1,order=2"}
	for _, c := range []struct {
		args string
		want document
		sql  string
	}{
		{"agent/42", document{Key: "agent/42", Form: "pair", ClassID: 1, ObjID: 42, ObjSubID: 2, Key1: 1, Key2: 42, Bigint: 1<<32 + 42}, "(1, 42)"},
		{"1:42", document{Key: "1:42", Form: "pair", ClassID: 1, ObjID: 42, ObjSubID: 2, Key1: 1, Key2: 42, Bigint: 1<<32 + 42}, "(1, 42)"},
		{"--key1 -1 --key2 2147483647", document{Key: "-1:2147483647", Form: "pair", ClassID: 1<<32 - 1, ObjID: 1<<31 - 1, ObjSubID: 2, Key1: -1, Key2: 1<<31 - 1, Bigint: -1<<32 + 1<<31 - 1}, "(-1, 2147483647)"},
		{"@12345", document{Key: "@12345", Form: "single", ObjID: 12345, ObjSubID: 1, Key2: 12345, Bigint: 12345}, "(12345)"},
		{"@-1", document{Key: "@-1", Form: "single", ClassID: 1<<32 - 1, ObjID: 1<<32 - 1, ObjSubID: 1, Key1: -1, Key2: -1, Bigint: -1}, "(-1)"},
		{"-- -1:5", document{Key: "-1:5", Form: "pair", ClassID: 1<<32 - 1, ObjID: 5, ObjSubID: 2, Key1: -1, Key2: 5, Bigint: -1<<32 + 5}, "(-1, 5)"},
	} {
		stdout, stderr, code := clitest.Run(t, names, strings.Fields("key -o json "+c.args)...)
		require.Zero(t, code, stderr)
		assert.Equal(t, c.want, clitest.Decode[document](t, stdout), c.args)
		assert.Contains(t, stdout, "SELECT pg_advisory_lock"+c.sql+";")
		text, _, _ := clitest.Run(t, names, strings.Fields("key "+c.args)...)
		assert.Contains(t, text, fmt.Sprintf("l.classid = %d AND l.objid = %d AND l.objsubid = %d", c.want.ClassID, c.want.ObjID, c.want.ObjSubID))
		assert.Equal(t, 1, strings.Count(text, "(another lock)"))
	}

	order, err := namespace.Must(2, "order").Text("9F3C2D1E-0000-4000-8000-00000000ABCD")
	require.NoError(t, err)
	stdout, _, _ := clitest.Run(t, names, "key", "--json", "order/9F3C2D1E-0000-4000-8000-00000000ABCD")
	got := clitest.Decode[document](t, stdout)
	assert.Equal(t, order.Tag(), namespace.Tag{ClassID: got.ClassID, ObjID: got.ObjID, ObjSubID: got.ObjSubID})
	assert.Equal(t, order.String(), got.Key)
}
