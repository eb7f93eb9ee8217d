"""What the tests and the benchmark run against: servers, proxies that play a slow or faulty network, sample
data."""
