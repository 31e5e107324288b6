// Command netlink adds policy rules as Go programs do, by github.com/vishvananda/netlink: the peer that fipd is measured
// against. It works in the network namespace in which it is started.
//
//	netlink add N distinct|same    adds N rules, and prints the microseconds that took
package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
)

const firstPriority = 10_000

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 3 || arguments[0] != "add" {
		return fmt.Errorf("usage: netlink add N distinct|same")
	}
	count, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	distinct := arguments[2] == "distinct"
	// A handle keeps its socket; without one the library opens one for each rule.
	handle, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	start := time.Now()
	for number := range count {
		rule := netlink.NewRule()
		rule.Family = netlink.FAMILY_V4
		address := net.IPv4(10, byte(96+(number>>16)), byte(number>>8), byte(number))
		rule.Src = &net.IPNet{IP: address, Mask: net.CIDRMask(32, 32)}
		rule.Table = 100
		rule.Priority = firstPriority
		if distinct {
			rule.Priority += number
		}
		if err := handle.RuleAdd(rule); err != nil {
			return fmt.Errorf("rule %d: %w", number, err)
		}
	}
	fmt.Println(time.Since(start).Microseconds())
	return nil
}
