package arrival

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Users is AIPerf's user-centric load (--user-centric-rate, --num-users):
// Count users, each of whom sends one turn every Gap = Count / Rate, so that
// all of them together send Rate requests per second.
//
// User k = 0 … Count-1 sends its first turn at Start(k), and the next one when
// Next says. A user whose session is over goes on with a new one. The load is
// closed: a user waits for the answer.
type Users struct {
	Count int
	Rate  float64 // requests per second of all users together
}

// Validate joins all faults: a count below 1, a rate that is not above 0.
func (u Users) Validate() error {
	var errs []error
	if u.Count < 1 {
		errs = append(errs, fmt.Errorf("number of users %d: it must be 1 or more", u.Count))
	}
	if !(u.Rate > 0) || u.Rate > maxRate {
		errs = append(errs, fmt.Errorf("user-centric rate %v: it must be a number above 0, at most %v", u.Rate, float64(maxRate)))
	}
	return errors.Join(errs...)
}

// Gap is the least time between two turns of one user.
func (u Users) Gap() time.Duration { return u.Start(u.Count) }

// Start is when user k sends its first turn: k / Rate.
func (u Users) Start(k int) time.Duration {
	return time.Duration(math.Round(min(float64(k)*1e9/u.Rate, math.MaxInt64/4)))
}

// Next is when a user's next turn is due, after one that was due at due and
// whose answer ended at ended: one Gap after due, or at once if the answer took
// longer. The turn after that counts from the value returned, so that a slow
// answer shifts the user's schedule and is never caught up with in a burst.
func (u Users) Next(due, ended time.Duration) time.Duration { return max(due+u.Gap(), ended) }

// Age is how many turns of its first session, one of the given length, user k
// has behind it when the load starts, so that the load begins with the mix of
// young and old sessions that it would settle at. Ages are spread evenly over
// the users, in [0, turns), and neighbours in time differ.
func (u Users) Age(k, turns int) int {
	if turns < 1 || u.Count < 1 {
		return 0
	}
	// Steps near the golden ratio spread best; prime to Count, they meet each
	// place once.
	step := max(1, int(float64(u.Count)*0.618))
	for gcd(step, u.Count) != 1 {
		step++
	}
	place := int64(k) * int64(step) % int64(u.Count)
	return int(place * int64(turns) / int64(u.Count))
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
