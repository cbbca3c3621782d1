//go:build race

package interop_test

// manyGaps is how many gaps the largest run of the tests has: the race detector
// makes everything ten times as slow.
const manyGaps = 50_000
