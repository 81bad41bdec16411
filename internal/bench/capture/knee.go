package capture

import "time"

// Rates that knee tries: the first, and the factor between one and the next.
const (
	firstRate = 100000
	rateStep  = 1.25
	topRate   = 4000000
)

// attempt is the result of packets at one rate.
type attempt struct {
	rate float64 // packets a second that were sent
	lost int
}

// knee returns the highest rate without loss; 0 if each rate lost packets. try sends at a rate and returns
// the rate that the sender reached. knee tries a rate with a loss once more. It ends at a rate that loses
// twice, or when the sender cannot send faster.
func knee(first float64, try func(rate int) (attempt, error)) (best float64, err error) {
	for rate := first; rate <= topRate; rate *= rateStep {
		a, err := try(int(rate))
		if err == nil && a.lost > 0 {
			a, err = try(int(rate))
		}
		if err != nil || a.lost > 0 {
			return best, err
		}
		if best = max(best, a.rate); a.rate < 0.9*rate {
			break // as fast as the sender is
		}
	}
	return best, nil
}

// kneeSpan is how long packets are sent at each rate.
const kneeSpan = time.Second
