package pgtable_test

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
