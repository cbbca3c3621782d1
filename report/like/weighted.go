package like

import (
	"math"
	"slices"

	"github.com/tokmark/tokmark/report/stats"
)

// describeWeighted describes values that each weigh something above 0.
func describeWeighted(values, weights []float64) (result, bool) {
	n := len(values)
	if n == 0 {
		return result{}, false
	}
	order := make([]int, n)
	var total, sum float64
	for i := range order {
		order[i] = i
		total += weights[i]
		sum += values[i] * weights[i]
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case values[a] < values[b]:
			return -1
		case values[a] > values[b]:
			return 1
		default:
			return 0
		}
	})
	st := &stats.Statistic{Count: int64(n), Sum: sum, Avg: sum / total, Min: values[order[0]], Max: values[order[n-1]]}
	var squares float64
	for i, v := range values {
		squares += weights[i] * (v - st.Avg) * (v - st.Avg)
	}
	st.Std = math.Sqrt(squares / total)
	for i, p := range stats.Percents {
		reached := 0.0
		st.Percentiles[i] = st.Max
		for _, k := range order {
			if reached += weights[k]; reached >= p/100*total {
				st.Percentiles[i] = values[k]
				break
			}
		}
	}
	return result{stat: st}, true
}
