// Package trading runs the trading example of docs/examples/trading: see TestTrading.
package trading
