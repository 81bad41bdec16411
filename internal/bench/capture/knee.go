package capture

import "time"

// Rates that are tried for the knee: from the first, each by so much higher.
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

// knee is the highest rate at which a contestant lost nothing, of those that try, which is given what to send at, could send; 0: it lost at each.
// A rate at which something was lost is tried once more. It ends where a rate loses twice, or the sender comes no higher.
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

// kneeSpan is for how long packets are sent at each rate.
const kneeSpan = time.Second
