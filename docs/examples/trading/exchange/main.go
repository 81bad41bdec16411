// Command exchange sends updates of order books, each in a UDP packet of its own. They follow from a seed: a random walk
// of each price.
package main

import (
	"flag"
	"log"
	"math/rand/v2"
	"net"
	"time"

	"github.com/unifiedd/unifiedd/docs/examples/trading/market"
)

func main() {
	to := flag.String("to", "127.0.0.1:5000", "`host:port` that packets go to")
	count := flag.Uint64("count", 100_000, "updates")
	rate := flag.Uint64("rate", 10_000, "updates per second")
	seed := flag.Uint64("seed", 1, "what the updates follow from")
	flag.Parse()
	if err := run(*to, *count, *rate, *seed); err != nil {
		log.Fatal("exchange: ", err)
	}
}

func run(to string, count, rate, seed uint64) error {
	conn, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	random := rand.New(rand.NewPCG(seed, 1))
	var prices [market.Instruments]uint64
	for i := range prices {
		prices[i] = 10_000 + random.Uint64N(90_000)
	}
	var packet [market.UpdateLen]byte
	for n, begun := uint64(0), time.Now(); n < count; n++ {
		time.Sleep(time.Until(begun.Add(time.Duration(n * uint64(time.Second) / rate))))
		instrument := random.Uint32N(market.Instruments)
		prices[instrument] += random.Uint64N(3) - 1
		u := market.Update{
			Sequence: n + 1, Instrument: instrument, Side: market.Side(random.Uint32N(2)), Level: uint8(random.Uint32N(market.Levels)),
			Price: prices[instrument], Quantity: 1 + random.Uint64N(1000), Sent: time.Now().UnixNano(),
		}
		if u.Side == market.Bid {
			u.Price -= uint64(u.Level) + 1
		} else {
			u.Price += uint64(u.Level) + 1
		}
		u.Put(packet[:])
		if _, err := conn.Write(packet[:]); err != nil {
			return err
		}
	}
	return nil
}
