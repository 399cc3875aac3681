package namespace_test

import (
	"fmt"

	"github.com/pglatch/pglatch/namespace"
)

func ExampleNamespace_ID() {
	agents := namespace.Must(1, "agent")

	k1, k2, _ := agents.ID(42).Tag().Pair()
	fmt.Printf("%v: pg_advisory_lock(%d, %d)\n", agents.ID(42), k1, k2)

	wide, _ := agents.ID(1 << 40).Tag().Single()
	fmt.Printf("%v: pg_advisory_lock(%d)\n", agents.ID(1<<40), wide)
	// Output:
	// agent/42: pg_advisory_lock(1, 42)
	// agent/1099511627776: pg_advisory_lock(538921061836823)
}

func ExampleNamespace_Text() {
	agents := namespace.Must(1, "agent")

	region, _ := agents.Text("acme/eu")
	fmt.Println(region, region.Tag())

	// The text of an integer, as it comes from a URL, is that integer.
	fromURL, _ := agents.Text("42")
	fmt.Println(fromURL.Tag() == agents.ID(42).Tag())

	_, err := agents.Text("")
	fmt.Println(err)
	// Output:
	// agent/acme/eu @331023547655415
	// true
	// namespace: invalid key agent/: the entity is empty
}

func ExampleSet_Parse() {
	set, err := namespace.NewSet(namespace.Must(1, "agent"), namespace.Must(2, "order"))
	if err != nil {
		panic(err)
	}
	for _, text := range []string{"order/7", "1:100", "@12345", "invoice/1"} {
		k, err := set.Parse(text)
		fmt.Println(k.Tag(), err)
	}
	// Output:
	// 2:7 <nil>
	// 1:100 <nil>
	// @12345 <nil>
	// invalid namespace: unknown namespace "invoice": it is not one of the program's namespaces
}
