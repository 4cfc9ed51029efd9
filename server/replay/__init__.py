"""`radixd replay`: scheduler processes that drive a daemon as engines do, and check every byte."""
