package check_test

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
