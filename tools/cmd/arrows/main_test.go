package main

import (
	"slices"
	"testing"
)

func TestACircleHasOneArrowUp(t *testing.T) {
	arrows := map[arrow]struct{}{{"a", "b"}: {}, {"b", "c"}: {}, {"c", "a"}: {}, {"a", "d"}: {}, {"d", "c"}: {}}
	files, up := order(arrows)
	if len(up) != 1 || up[0] != (arrow{"c", "a"}) {
		t.Fatalf("%v point up in %v, want c → a", up, files)
	}
	if slices.Index(files, "d") > slices.Index(files, "c") {
		t.Fatalf("%v", files)
	}
}
