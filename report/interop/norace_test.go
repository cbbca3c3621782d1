//go:build !race

package interop_test

// manyGaps is how many gaps the largest run of the tests has.
const manyGaps = 1_000_000
