//! The complete view of networks, pools, leases, contenders and free space, and the decisions over it.
