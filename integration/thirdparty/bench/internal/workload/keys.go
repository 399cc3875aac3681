package workload

import "math/rand/v2"

// Keys selects the locks of a load.
type Keys string

// The kinds of keys.
const (
	Random Keys = "random" // of 2³⁰ keys: no waits
	Hot    Keys = "hot"    // the same key for all
	Own    Keys = "own"    // one key for each worker
	Zipf   Keys = "zipf"   // of 1,000 keys, the i-th with a weight of 1/i^1.1
)

const (
	randomKeys = 1 << 30
	zipfKeys   = 1000
	zipfS      = 1.1
)

// picker returns a function that chooses keys for the worker of a number.
func (k Keys) picker(number int) func() uint32 {
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	switch k {
	case Hot:
		return func() uint32 { return 1 }
	case Own:
		return func() uint32 { return uint32(number) + 2 }
	case Zipf:
		z := rand.NewZipf(r, zipfS, 1, zipfKeys-1)
		return func() uint32 { return uint32(z.Uint64()) }
	default:
		return func() uint32 { return r.Uint32N(randomKeys) }
	}
}
